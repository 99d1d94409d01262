#pragma once
// The host's copies of a rank's state, all in one place: snapshot buffers, of which each has room for the
// whole state and the layout of a snapshot (BufferShape). With a local level they lie in its folder, else in
// memory. Saves are written from them, partner copies sent from them, and a restore fills them.
//
// On the host the optimizer's arenas lie in them: it reads one buffer and writes the next, so that a snapshot
// costs no copy. For a GPU a snapshot is copied into a buffer beside the next step. With a local level it is
// then sealed in the background, and the sums of the next step's gradients wait for the seals of all ranks:
// whoever changes the state again knows that all have that step. buffer_rotation.hpp has the life of a
// buffer.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/index/state_folder.hpp"
#include "src/base/clock.hpp"
#include "src/device/device.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/train/common/background.hpp"
#include "src/train/local/buffer_rotation.hpp"
#include "src/train/local/local_identity.hpp"

namespace holdfast::train {

using optim::StateArenas;

struct SnapshotParts {
  LocalRun run;
  int rank = 0;
  std::optional<checkpoint::StateFolder> file;  ///< of the local level, where there is one
  std::vector<std::span<std::byte>> memory;     ///< else the buffers
  int every = 1;                                ///< steps between snapshots of the local level
  /// Host: the state that training goes on with lies in this buffer, and will be changed there.
  std::function<void(std::span<std::byte> buffer)> live;
};

class Snapshots {
 public:
  virtual ~Snapshots() = default;
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  int buffers() const { return static_cast<int>(views_.size()); }
  std::span<std::byte> buffer(int index) const {
    return parts_.file ? parts_.file->buffer(index) : parts_.memory.at(index);
  }
  /// This rank's pieces in a buffer (all that it holds, in the order of StateViews::held).
  const checkpoint::State& view(int buffer) const { return views_.at(buffer); }
  /// Whether there is a local level: then snapshots outlive the process.
  bool local() const { return parts_.file.has_value(); }
  /// Only where there is a local level.
  checkpoint::StateFolder& file() { return parts_.file.value(); }

  // Readiness. Buffers for a GPU are pinned, which takes seconds for each 10 GiB: beside the first steps of a
  // run that saves, else when a save is ordered.
  /// Training begins, and will save: makes the buffers ready in the background. A failure is thrown by
  /// join().
  virtual void prepare() {}
  /// Whether a snapshot can be taken at once.
  virtual bool ready() const { return true; }
  /// Returns when one can.
  virtual void get_ready() {}

  // Training:
  /// Snapshots of the local level are due after steps that `every()` divides.
  int every() const { return parts_.every; }
  /// With a local level, after the optimizer step (or the load) that led to `point`, when a snapshot is due
  /// or the state is to be saved, on all ranks alike: begins to seal the state as it is.
  void begin(const checkpoint::RunPoint& point);
  /// Before the optimizer step, after join() and agree_on_update(): opens the buffer that the new state goes
  /// to. Empty: it goes where the old one is.
  virtual std::span<std::byte> next() = 0;
  /// The new state lies in next(), which is live from now on.
  virtual void moved() {}
  /// Waits for copy, seal and `after_seal`; in every step before something that no rank leaves until all have
  /// come (Engine::reduce() does it). Returns the seconds that it waited. A failure of the background work is
  /// thrown here.
  virtual double join() { return background_.join(); }

  // Saves:
  /// A snapshot of the state as it is now, which does not change until release().
  struct Held {
    int buffer = -1;
    tensor::Event copied;  ///< then it is in the buffer
  };
  /// Only while none is held. With a local level after begin().
  Held hold();
  /// Any thread.
  void release();
  bool holds() const;
  /// Waits until none is held; false: not in time.
  bool wait_released(Deadline deadline) const;

  // Restore:
  /// This buffer holds the state that training goes on from. On the host it becomes the live one.
  void adopt(int buffer);
  /// Before the live state is changed from outside (initial weights): it is no snapshot any more.
  void invalidate();
  /// A buffer that nobody needs any more, opened, to be filled by the caller and then sealed or adopted. Only
  /// with a local level.
  int spare_buffer(std::span<const int> needed);

  // The local level:
  /// Called on the background thread for every snapshot that was sealed: partner copies.
  using AfterSeal = std::function<void(int buffer, const checkpoint::Sealed& what)>;
  void after_seal(AfterSeal hook) { after_seal_ = std::move(hook); }
  /// A snapshot that must stay until another is kept instead: the newest one that is whole on its partner.
  void keep(int buffer);
  /// After join(): seal_of() the digests of the snapshot that was sealed last, when it is that of this point.
  std::optional<std::uint64_t> newest_seal(std::int64_t step, std::int64_t samples) const;

 protected:
  Snapshots(SnapshotParts parts, int live);
  /// The live buffer gets the state as it is, behind what compute was given so far. Returns when it is there.
  virtual tensor::Event copy_state() = 0;
  /// Training goes on with the state in this buffer.
  virtual void take(int buffer) = 0;
  void open(int buffer) {
    if (parts_.file) parts_.file->open(buffer);
  }
  /// As of BufferRotation.
  int next_buffer() const;
  void move_to(int buffer);
  int live() const { return rotation_.live(); }
  /// The state is about to change.
  void changes() { current_ = false; }

  SnapshotParts parts_;

 private:
  void make_current();
  void seal(int buffer, const checkpoint::RunPoint& point);

  struct Newest {
    std::int64_t step = -1, samples = -1;
    std::uint64_t seal = 0;
  };

  std::vector<checkpoint::State> views_;
  mutable std::mutex mutex_;  // guards rotation_: a save that is written releases its buffer at any time
  mutable std::condition_variable released_;
  BufferRotation rotation_;
  bool current_ = false;  ///< the live buffer is a snapshot of the state as it is now
  tensor::Event copied_;  ///< of the live buffer
  Newest newest_;
  AfterSeal after_seal_;
  Background background_;  // the last member: its thread ends before what it uses
};

/// The arenas lie in the buffers; `live` is called at once, and whenever another buffer has become the live
/// one.
std::unique_ptr<Snapshots> make_host_snapshots(SnapshotParts parts);
/// The arenas are copied from device memory by the side stream, and back to it by adopt(). There is no
/// `live`. Buffers are pinned when they are first used, those of the local level as they were found.
std::unique_ptr<Snapshots> make_device_snapshots(SnapshotParts parts, device::Device& device,
                                                 const StateArenas& arenas);

}  // namespace holdfast::train
