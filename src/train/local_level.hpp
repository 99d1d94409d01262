#pragma once
// The local level during training. On the host the optimizer's arenas lie in the slots of the local file: it
// reads one slot and writes the next, so that a snapshot costs no copy. For a GPU a snapshot is copied into a
// slot beside the next step. Either way it is sealed in the background, and the next step's decision waits
// for the seal: when any rank goes on, all have that step.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "checkpoint/local_file.hpp"
#include "src/train/state_views.hpp"

namespace holdfast::train {

/// Where the three arenas of an optimizer state lie.
struct StateArenas {
  float* parameters = nullptr;
  std::byte *exp_avg = nullptr, *exp_avg_sq = nullptr;
};

class LocalLevel {
 public:
  virtual ~LocalLevel() = default;

  /// Snapshots are due after steps that `every()` divides.
  virtual int every() const = 0;
  /// After the optimizer step (or the load) that led to `point`, when a snapshot is due: begins to seal the
  /// live slot.
  virtual void begin(const checkpoint::RunPoint& point) = 0;
  /// Before the next decision: waits for seal and `after_seal`. Returns the seconds that it waited. A failure
  /// of the background work is thrown here.
  virtual double join() = 0;

  virtual checkpoint::LocalFile& file() = 0;
  /// This rank's pieces in a slot (all that it holds, in the order of StateViews::held).
  virtual checkpoint::State view(int slot) const = 0;
  /// Restore: this slot holds the state that training goes on from. On the host it becomes the live one.
  virtual void adopt(int slot) = 0;
  /// Restore: a slot that nobody needs any more, opened, to be filled by the caller and then sealed or
  /// adopted.
  virtual int spare_slot(std::span<const int> needed) = 0;

  /// Called on the background thread for every snapshot that was sealed: partner copies.
  using AfterSeal = std::function<void(int slot, const checkpoint::Sealed& what)>;
  virtual void after_seal(AfterSeal hook) = 0;
  /// A snapshot that must stay until another is kept instead: the newest one that is whole on its partner.
  virtual void keep(int slot) = 0;
};

}  // namespace holdfast::train
