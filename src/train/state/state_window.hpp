#pragma once
// How the host writes state that lies on a GPU: through a window, a small buffer of pinned memory. The host
// works on one half of it while the other is copied, and needs no memory for the whole state. On the host,
// whose memory the state lies in, there is no window. Digests are taken where the state lies.
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/index/state.hpp"
#include "src/device/device.hpp"

namespace holdfast::train {

class StateWindow {
 public:
  static constexpr std::int64_t usual_bytes = std::int64_t{16} << 20;

  /// `bytes`: of the window, a multiple of 128. The device outlives it.
  explicit StateWindow(device::Device& device, std::int64_t bytes = usual_bytes);

  /// Calls `fill` for one part of [to, to + bytes) after the other; compute enqueued later sees what it
  /// wrote.
  using Fill = std::function<void(std::span<std::byte> part, std::int64_t at)>;
  void write(std::byte* to, std::int64_t bytes, const Fill& fill);

  // Of pieces of a state that lie on the device:
  /// The digest of each piece, see digest_part().
  void digests(const checkpoint::State& state, std::span<std::uint64_t> of_piece);
  /// As checkpoint::partial_digests().
  std::vector<std::uint64_t> partial_digests(const checkpoint::State& state);
  /// Calls `fill` with states whose pieces lie in host memory and which together are `state`; what it wrote
  /// is in `state` then.
  void fill(const checkpoint::State& state, const std::function<void(const checkpoint::State& part)>& fill);

 private:
  static constexpr std::size_t digests_at_once = 512;

  std::span<std::byte> half(std::size_t i) const { return window_.subspan(i * half_bytes_, half_bytes_); }

  device::Device& device_;
  kernels::DigestSums* sums_;  ///< on the device, of digests_at_once pieces
  std::span<std::byte> window_;
  std::size_t half_bytes_ = 0;
  std::array<tensor::Event, 2> busy_;  ///< the newest copy from a half
};

}  // namespace holdfast::train
