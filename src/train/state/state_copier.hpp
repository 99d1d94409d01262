#pragma once
// Copies a snapshot of the state to host memory beside the next step's forward and backward pass: nothing
// changes the state until the next optimizer step, which waits for the copy.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "src/device/device.hpp"
#include "src/train/state/state_window.hpp"

namespace holdfast::train {

struct Copy {
  std::byte* to = nullptr;          ///< host memory; for a GPU's side stream, memory that the device gave
  const std::byte* from = nullptr;  ///< where the state lies: device memory on a GPU
  std::int64_t bytes = 0;
};

class StateCopier {
 public:
  virtual ~StateCopier() = default;
  /// Begins; returns before anything is copied. On a GPU the copies are behind everything that compute was
  /// given so far. The memory stays as it is until join(). One list at a time.
  virtual void begin(std::span<const Copy> list) = 0;
  /// Waits until the list is copied; at once when nothing was begun. On the host the caller copies along.
  /// Returns the seconds that it took. Throws Error where the device does.
  virtual double join() = 0;
};

/// Host memory to host memory by a thread of its own. `copy` is called on it and on the joining thread, with
/// parts of the list.
using CopyBytes = std::function<void(std::byte* to, const std::byte* from, std::size_t bytes)>;
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);
std::unique_ptr<StateCopier> make_host_copier(CopyBytes copy = copy_bytes);
/// By the side stream of a GPU, enqueued by the thread that begins. The device outlives it.
std::unique_ptr<StateCopier> make_device_copier(device::Device& device);
/// Through the window, by the thread that joins, to any host memory: for copies that are rare. The window
/// outlives it.
std::unique_ptr<StateCopier> make_window_copier(StateWindow& window);
/// Whichever of the first two fits.
std::unique_ptr<StateCopier> make_state_copier(device::Device& device);

}  // namespace holdfast::train
