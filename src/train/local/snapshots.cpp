// The base class has what both kinds share. A snapshot begins with make_current(), which has the state copied
// to a buffer unless it lies there already. begin() then lets the background wait for the copy, compute
// digests, seal the buffer and call the hook; join() waits for all that, and throws what failed there. hold()
// keeps the live buffer as it is until release().
//
// - HostSnapshots: next() opens the buffer that the optimizer writes to, and moved() makes it live.
// - DeviceSnapshots: the side stream copies the arenas, and join() makes compute wait for that copy. Buffers
//   are pinned in the background (prepare) or when they are needed.
//
// With a local level a buffer is opened before anybody writes to it, so a process that dies leaves no seal on
// a state that is not whole. `mutex_` guards the rotation alone; all else is kept apart by join().
#include "src/train/local/snapshots.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/train/local/offers.hpp"

namespace holdfast::train {
namespace {

using checkpoint::Sealed;
using checkpoint::StateFolder;

/// Step of the snapshot in a buffer; -1: there is none.
std::int64_t step_of(const StateFolder& file, int buffer) {
  const auto what = file.sealed(buffer);
  return what ? what->point.step : -1;
}

/// The buffer among those that are not `needed` whose content is worth least.
int oldest_buffer(const StateFolder& file, std::span<const int> needed) {
  int best = -1;
  for (int buffer = 0; buffer < file.buffers(); ++buffer)
    if (std::ranges::find(needed, buffer) == needed.end() &&
        (best < 0 || step_of(file, buffer) < step_of(file, best)))
      best = buffer;
  expects(best >= 0, "one buffer at least is not needed");
  return best;
}

int newest_buffer(const StateFolder& file) {
  int best = 0;
  for (int buffer = 1; buffer < file.buffers(); ++buffer)
    if (step_of(file, buffer) > step_of(file, best)) best = buffer;
  return best;
}

class HostSnapshots final : public Snapshots {
 public:
  explicit HostSnapshots(SnapshotParts parts)
      : HostSnapshots(parts.file ? oldest_buffer(*parts.file, {}) : 0, parts) {}

  std::span<std::byte> next() override {
    changes();
    const int buffer = next_buffer();
    if (buffer == live()) return {};
    open(buffer);
    return this->buffer(next_ = buffer);
  }
  void moved() override {
    move_to(next_);
    take(next_);
  }

 private:
  HostSnapshots(int live, SnapshotParts& parts) : Snapshots(std::move(parts), live) { take(live); }
  tensor::Event copy_state() override { return {}; }  // it lies there
  void take(int buffer) override { parts_.live(this->buffer(buffer)); }

  int next_ = 0;
};

class DeviceSnapshots final : public Snapshots {
 public:
  DeviceSnapshots(SnapshotParts parts, device::Device& device, const StateArenas& arenas)
      : DeviceSnapshots(parts.file ? newest_buffer(*parts.file) : 0, parts, device, arenas) {}
  ~DeviceSnapshots() override {
    ending_ = true;
    const auto calm = [](const auto& wait) {
      try {
        wait();
      } catch (...) {
      }
    };
    calm([this] { Snapshots::join(); });
    calm([this] { pinning_.join(); });
    calm([this] { copied_.wait(); });  // nothing is copied to a buffer any more
    for (int i = 0; i < buffers(); ++i)
      if (pinned_[i] != nullptr) device_.unpin(buffer(i));
  }

  void prepare() override {
    if (std::exchange(prepared_, true)) return;
    pinning_.begin([this] {
      for (int i = 0; i < buffers() && touch(buffer(i)); ++i) pin(i);
    });
  }
  bool ready() const override {
    return !pinning_.going() && std::ranges::find(pinned_, nullptr) == pinned_.end();
  }
  void get_ready() override {
    pinning_.join();
    for (int i = 0; i < buffers(); ++i) pin(i);
  }

  double join() override {
    const double waited = Snapshots::join();
    if (!pinning_.going()) pinning_.join();  // says what went wrong there
    device_.compute().wait(copied_);         // what compute is given from now on may change the state
    return waited;
  }
  std::span<std::byte> next() override {
    changes();
    return {};
  }

 private:
  DeviceSnapshots(int live, SnapshotParts& parts, device::Device& device, const StateArenas& arenas)
      : Snapshots(std::move(parts), live),
        device_(device),
        arenas_(arenas),
        shape_(buffer_shape_of(parts_.run, parts_.rank)),
        pinned_(as_size(buffers())) {}

  void pin(int buffer) {
    if (pinned_[buffer] == nullptr) pinned_[buffer] = device_.pin(this->buffer(buffer));
  }
  /// A buffer as streams know it.
  std::byte* pinned(int buffer) {
    pinning_.join();
    pin(buffer);
    return pinned_[buffer];
  }
  /// Gives memory its pages, a part at a time, which is most of the time that pinning takes, and holds up
  /// nobody. False: nobody needs it any more. Where the kernel cannot (before 5.14), pinning does it.
  bool touch(std::span<std::byte> memory) const {
    constexpr std::size_t part = std::size_t{64} << 20;
    for (std::size_t at = 0; at < memory.size() && !ending_; at += part)
      ::madvise(memory.data() + at, std::min(part, memory.size() - at), MADV_POPULATE_WRITE);
    return !ending_;
  }

  tensor::Event copy_state() override {
    const int buffer = next_buffer();
    std::byte* const to = pinned(buffer);
    open(buffer);
    move_to(buffer);
    tensor::Stream& side = device_.side();
    side.wait(device_.compute().record());
    side.copy(to, arenas_.parameters, shape_.parameter_bytes);
    side.copy(to + shape_.exp_avg, arenas_.exp_avg, shape_.moment_bytes);
    side.copy(to + shape_.exp_avg_sq, arenas_.exp_avg_sq, shape_.moment_bytes);
    return copied_ = side.record();
  }
  void take(int buffer) override {
    const std::byte* const from = pinned(buffer);
    tensor::Stream& compute = device_.compute();
    compute.copy(arenas_.parameters, from, shape_.parameter_bytes);
    compute.copy(arenas_.exp_avg, from + shape_.exp_avg, shape_.moment_bytes);
    compute.copy(arenas_.exp_avg_sq, from + shape_.exp_avg_sq, shape_.moment_bytes);
    compute.record().wait();  // the buffer may change again
  }

  device::Device& device_;
  StateArenas arenas_;
  BufferShape shape_;
  std::vector<std::byte*> pinned_;  ///< by buffer; null: not pinned yet
  tensor::Event copied_;            ///< the newest snapshot has left the device
  bool prepared_ = false;
  std::atomic<bool> ending_ = false;
  Background pinning_;  // the last member: its thread ends before what it uses
};

}  // namespace

Snapshots::Snapshots(SnapshotParts parts, int live)
    : parts_(std::move(parts)),
      rotation_(parts_.file ? parts_.file->buffers() : static_cast<int>(parts_.memory.size()), live) {
  const int count = parts_.file ? parts_.file->buffers() : static_cast<int>(parts_.memory.size());
  for (int i = 0; i < count; ++i) views_.push_back(buffer_view_of(parts_.run, parts_.rank, buffer(i).data()));
}

int Snapshots::next_buffer() const {
  const std::scoped_lock lock(mutex_);
  return rotation_.next();
}

void Snapshots::move_to(int buffer) {
  const std::scoped_lock lock(mutex_);
  rotation_.move(buffer);
}

void Snapshots::keep(int buffer) {
  const std::scoped_lock lock(mutex_);
  rotation_.keep(buffer);
}

void Snapshots::make_current() {
  if (current_) return;
  copied_ = copy_state();
  current_ = true;
  const std::scoped_lock lock(mutex_);
  rotation_.snapshot();
}

void Snapshots::begin(const checkpoint::RunPoint& point) {
  expects(local(), "a snapshot of the local level");
  background_.join();
  make_current();
  background_.begin([this, point, copied = copied_, buffer = live()] {
    copied.wait();
    seal(buffer, point);
  });
}

void Snapshots::seal(int buffer, const checkpoint::RunPoint& point) {
  auto what = file().sealed(buffer);
  if (!what || what->point != point) {  // it is, where it was adopted as it was found
    what = Sealed{point, checkpoint::piece_digests(views_[buffer])};
    file().seal(buffer, *what);
  }
  newest_ = {point.step, point.samples, seal_of(what->digests)};
  if (after_seal_) after_seal_(buffer, *what);
}

Snapshots::Held Snapshots::hold() {
  make_current();
  const std::scoped_lock lock(mutex_);
  rotation_.hold();
  return {rotation_.live(), copied_};
}

void Snapshots::release() {
  {
    const std::scoped_lock lock(mutex_);
    rotation_.release();
  }
  released_.notify_all();
}

bool Snapshots::holds() const {
  const std::scoped_lock lock(mutex_);
  return rotation_.holds();
}

bool Snapshots::wait_released(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return released_.wait_for(lock, deadline.left(), [this] { return !rotation_.holds(); });
}

void Snapshots::adopt(int buffer) {
  join();
  move_to(buffer);
  current_ = !local() || file().sealed(buffer);
  if (current_) {
    const std::scoped_lock lock(mutex_);
    rotation_.snapshot();
  }
  take(buffer);
}

void Snapshots::invalidate() {
  join();
  changes();
  open(live());
  move_to(live());
}

int Snapshots::spare_buffer(std::span<const int> needed) {
  join();  // nothing is read from a buffer any more
  const int buffer = oldest_buffer(file(), needed);
  open(buffer);
  return buffer;
}

std::optional<std::uint64_t> Snapshots::newest_seal(std::int64_t step, std::int64_t samples) const {
  if (newest_.step != step || newest_.samples != samples) return std::nullopt;
  return newest_.seal;
}

std::unique_ptr<Snapshots> make_host_snapshots(SnapshotParts parts) {
  return std::make_unique<HostSnapshots>(std::move(parts));
}

std::unique_ptr<Snapshots> make_device_snapshots(SnapshotParts parts, device::Device& device,
                                                 const StateArenas& arenas) {
  return std::make_unique<DeviceSnapshots>(std::move(parts), device, arenas);
}

}  // namespace holdfast::train
