#include "src/train/local/local_level.hpp"

#include <algorithm>

#include "src/base/error.hpp"
#include "src/train/common/background.hpp"
#include "src/train/local/buffer_rotation.hpp"
#include "src/train/local/offers.hpp"
#include "src/train/local/partner_plan.hpp"

namespace holdfast::train {
namespace {

using checkpoint::LocalFile;
using checkpoint::Sealed;

/// Step of the snapshot in a buffer; -1: there is none.
std::int64_t step_of(const LocalFile& file, int buffer) {
  const auto what = file.sealed(buffer);
  return what ? what->point.step : -1;
}

/// The buffer among those that are not `needed` whose content is worth least.
int oldest_buffer(const LocalFile& file, std::span<const int> needed) {
  int best = -1;
  for (int buffer = 0; buffer < file.buffers(); ++buffer)
    if (std::ranges::find(needed, buffer) == needed.end() &&
        (best < 0 || step_of(file, buffer) < step_of(file, best)))
      best = buffer;
  expects(best >= 0, "one buffer at least is not needed");
  return best;
}

int newest_buffer(const LocalFile& file) {
  int best = 0;
  for (int buffer = 1; buffer < file.buffers(); ++buffer)
    if (step_of(file, buffer) > step_of(file, best)) best = buffer;
  return best;
}

/// What both kinds have in common: a buffer is sealed in the background.
class Sealing : public LocalLevel {
 public:
  Sealing(LocalLevelParts parts, int live)
      : parts_(std::move(parts)), rotation_(parts_.file.buffers(), live) {
    for (int buffer = 0; buffer < parts_.file.buffers(); ++buffer)
      views_.push_back(buffer_view_of(parts_.run, parts_.rank, parts_.file.buffer(buffer).data()));
  }

  int every() const override { return parts_.every; }
  double join() override { return background_.join(); }
  LocalFile& file() override { return parts_.file; }
  checkpoint::State view(int buffer) const override { return views_.at(buffer); }
  void adopt(int buffer) override {
    join();
    rotation_.move(buffer);
    if (parts_.file.sealed(buffer)) rotation_.snapshot();
    take(buffer);
  }
  int spare_buffer(std::span<const int> needed) override {
    join();  // nothing is read from a buffer any more
    const int buffer = oldest_buffer(parts_.file, needed);
    parts_.file.open(buffer);
    return buffer;
  }
  void after_seal(AfterSeal hook) override { after_seal_ = std::move(hook); }
  void keep(int buffer) override { rotation_.keep(buffer); }
  std::optional<std::uint64_t> newest_seal(std::int64_t step, std::int64_t samples) const override {
    if (newest_.step != step || newest_.samples != samples) return std::nullopt;
    return newest_.seal;
  }

 protected:
  /// Training goes on with the state in this buffer.
  virtual void take(int buffer) = 0;
  /// Seals the live buffer once `copied` has passed.
  void seal_in_background(const checkpoint::RunPoint& point, const tensor::Event& copied) {
    rotation_.snapshot();
    background_.begin([this, point, copied, buffer = rotation_.live()] {
      copied.wait();
      seal(buffer, point);
    });
  }

  LocalLevelParts parts_;
  BufferRotation rotation_;

 private:
  void seal(int buffer, const checkpoint::RunPoint& point) {
    auto what = parts_.file.sealed(buffer);
    if (!what || what->point != point) {  // it is, where it was adopted as it was found
      what = Sealed{point, checkpoint::piece_digests(views_[buffer])};
      parts_.file.seal(buffer, *what);
    }
    newest_ = {point.step, point.samples, seal_of(what->digests)};
    if (after_seal_) after_seal_(buffer, *what);
  }

  struct Newest {
    std::int64_t step = -1, samples = -1;
    std::uint64_t seal = 0;
  };

  std::vector<checkpoint::State> views_;
  Newest newest_;
  AfterSeal after_seal_;
  Background background_;  // the last member: its thread ends before what it uses
};

class HostLocalLevel final : public Sealing {
 public:
  explicit HostLocalLevel(LocalLevelParts parts) : HostLocalLevel(oldest_buffer(parts.file, {}), parts) {}

  void begin(const checkpoint::RunPoint& point) override { seal_in_background(point, {}); }
  std::span<std::byte> next() override {
    const int buffer = rotation_.next();
    if (buffer == rotation_.live()) return {};
    parts_.file.open(buffer);
    return parts_.file.buffer(next_ = buffer);
  }
  void moved() override {
    rotation_.move(next_);
    parts_.live(parts_.file.buffer(next_));
  }
  void invalidate() override {
    join();
    parts_.file.open(rotation_.live());
    rotation_.move(rotation_.live());
  }

 private:
  void take(int buffer) override { parts_.live(parts_.file.buffer(buffer)); }

  HostLocalLevel(int live, LocalLevelParts& parts) : Sealing(std::move(parts), live) {
    parts_.live(parts_.file.buffer(live));
  }

  int next_ = 0;
};

class DeviceLocalLevel final : public Sealing {
 public:
  DeviceLocalLevel(LocalLevelParts parts, device::Device& device, const StateArenas& arenas)
      : DeviceLocalLevel(newest_buffer(parts.file), parts, device, arenas) {}
  ~DeviceLocalLevel() override {
    try {
      Sealing::join();  // nothing is copied to a buffer any more
    } catch (...) {
    }
    for (int buffer = 0; buffer < parts_.file.buffers(); ++buffer) device_.unpin(parts_.file.buffer(buffer));
  }

  void begin(const checkpoint::RunPoint& point) override {
    const int buffer = rotation_.next();
    parts_.file.open(buffer);
    rotation_.move(buffer);
    std::byte* const to = pinned_[buffer];
    const BufferShape& shape = shape_;
    tensor::Stream& side = device_.side();
    side.wait(device_.compute().record());
    side.copy(to, arenas_.parameters, shape.parameter_bytes);
    side.copy(to + shape.exp_avg, arenas_.exp_avg, shape.moment_bytes);
    side.copy(to + shape.exp_avg_sq, arenas_.exp_avg_sq, shape.moment_bytes);
    seal_in_background(point, copied_ = side.record());
  }
  double join() override {
    const double waited = Sealing::join();
    device_.compute().wait(copied_);  // what compute is given from now on may change the state
    return waited;
  }
  std::span<std::byte> next() override { return {}; }
  void moved() override {}
  void invalidate() override {}

 private:
  void take(int buffer) override {
    const std::byte* const from = pinned_[buffer];
    tensor::Stream& compute = device_.compute();
    compute.copy(arenas_.parameters, from, shape_.parameter_bytes);
    compute.copy(arenas_.exp_avg, from + shape_.exp_avg, shape_.moment_bytes);
    compute.copy(arenas_.exp_avg_sq, from + shape_.exp_avg_sq, shape_.moment_bytes);
    compute.record().wait();  // the buffer may change again
  }

  DeviceLocalLevel(int live, LocalLevelParts& parts, device::Device& device, const StateArenas& arenas)
      : Sealing(std::move(parts), live),
        device_(device),
        arenas_(arenas),
        shape_(buffer_shape_of(parts_.run, parts_.rank)) {
    if (parts_.file.sealed(live)) rotation_.snapshot();
    for (int buffer = 0; buffer < parts_.file.buffers(); ++buffer)
      pinned_.push_back(device.pin(parts_.file.buffer(buffer)));
  }

  device::Device& device_;
  StateArenas arenas_;
  BufferShape shape_;
  std::vector<std::byte*> pinned_;  ///< the buffers, as streams know them
  tensor::Event copied_;            ///< the newest snapshot has left the device
};

}  // namespace

std::optional<std::filesystem::path> local_folder_of(const Setup& setup) {
  const std::string& local = setup.config.checkpoint.local;
  if (local == "none" || (local == "auto" && !setup.place.agent)) return std::nullopt;
  return local_level_folder(local == "auto" ? "/dev/shm" : local, setup.dir.path);
}

void remove_local_folder(const Setup& setup) noexcept {
  std::error_code ignored;  // another rank of the node removes it as well
  if (const auto folder = local_folder_of(setup)) std::filesystem::remove_all(*folder, ignored);
}

LocalFile open_local_file(const Setup& setup, const LocalRun& run, const std::filesystem::path& folder) {
  const auto& checkpoint = setup.config.checkpoint;
  const bool first =
      setup.place.agent ? setup.place.agent->attempt <= 1 : !std::filesystem::exists(setup.dir.metrics());
  // In bare mode every start is told where the run begins; under agents only the first one.
  const bool begins_elsewhere = !setup.place.agent && setup.config.run.resume != "auto";
  // A third one, where the newest snapshot with a copy on another node is not the newest one.
  const bool keeps = checkpoint.partner != config::Partner::none &&
                     checkpoint.partner_every > checkpoint.local_every &&
                     !copy_destinations(run.mesh, setup.place.ranks_per_node).empty();
  const int buffers = keeps ? 3 : 2;
  return LocalFile(folder / local_level_file(setup.place.rank, false),
                   local_identity_of(run, setup.place.rank), buffer_shape_of(run, setup.place.rank).bytes,
                   buffers, first || begins_elsewhere, run.record_bytes);
}

std::unique_ptr<LocalLevel> make_host_local_level(LocalLevelParts parts) {
  return std::make_unique<HostLocalLevel>(std::move(parts));
}

std::unique_ptr<LocalLevel> make_device_local_level(LocalLevelParts parts, device::Device& device,
                                                    const StateArenas& arenas) {
  return std::make_unique<DeviceLocalLevel>(std::move(parts), device, arenas);
}

}  // namespace holdfast::train
