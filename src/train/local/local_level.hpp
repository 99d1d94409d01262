#pragma once
// The local level during training. On the host the optimizer's arenas lie in the snapshot buffers of the
// local file: it reads one buffer and writes the next, so that a snapshot costs no copy. For a GPU a snapshot
// is copied into a buffer beside the next step. Either way it is sealed in the background, and the sums of
// the next step's gradients wait for the seals of all ranks: whoever changes the state again knows that all
// have that step.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "checkpoint/index/local_file.hpp"
#include "src/device/device.hpp"
#include "src/optim/sharded_adamw.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/local/local_identity.hpp"

namespace holdfast::train {

using optim::StateArenas;

class LocalLevel {
 public:
  virtual ~LocalLevel() = default;

  /// Snapshots are due after steps that `every()` divides.
  virtual int every() const = 0;
  /// After the optimizer step (or the load) that led to `point`, when a snapshot is due: begins to seal the
  /// live buffer.
  virtual void begin(const checkpoint::RunPoint& point) = 0;
  /// Before the optimizer step, after join() and agree_on_update(): opens the buffer that the new state goes
  /// to. Empty: it goes where the old one is.
  virtual std::span<std::byte> next() = 0;
  /// The new state lies in next(), which is live from now on.
  virtual void moved() = 0;
  /// Waits for seal and `after_seal`; in every step before something that no rank leaves until all have come
  /// (Engine::reduce() does it). Returns the seconds that it waited. A failure of the background work is
  /// thrown here.
  virtual double join() = 0;

  virtual checkpoint::LocalFile& file() = 0;
  /// This rank's pieces in a buffer (all that it holds, in the order of StateViews::held).
  virtual checkpoint::State view(int buffer) const = 0;
  /// Restore: this buffer holds the state that training goes on from. On the host it becomes the live one.
  virtual void adopt(int buffer) = 0;
  /// Before the live state is changed from outside (initial weights): it is no snapshot any more.
  virtual void invalidate() = 0;
  /// Restore: a buffer that nobody needs any more, opened, to be filled by the caller and then sealed or
  /// adopted.
  virtual int spare_buffer(std::span<const int> needed) = 0;

  /// Called on the background thread for every snapshot that was sealed: partner copies.
  using AfterSeal = std::function<void(int buffer, const checkpoint::Sealed& what)>;
  virtual void after_seal(AfterSeal hook) = 0;
  /// A snapshot that must stay until another is kept instead: the newest one that is whole on its partner.
  virtual void keep(int buffer) = 0;

  /// After join(): seal_of() the digests of the snapshot that was sealed last, when it is that of this point.
  virtual std::optional<std::uint64_t> newest_seal(std::int64_t step, std::int64_t samples) const = 0;
};

/// The folder that holds the local files of this run on every node, by checkpoint.local and where this rank
/// is; nothing: there is no local level.
std::optional<std::filesystem::path> local_folder_of(const Setup& setup);
/// Removes that folder, for a run that is over. Never throws.
void remove_local_folder(const Setup& setup) noexcept;

/// This rank's own file. Collective only in that a first attempt has to find no rank training: nothing that
/// was left behind in the folder is taken for a state of a run that has just begun, or of one that begins
/// elsewhere (run.resume).
checkpoint::LocalFile open_local_file(const Setup& setup, const LocalRun& run,
                                      const std::filesystem::path& folder);

struct LocalLevelParts {
  checkpoint::LocalFile file;
  LocalRun run;
  int rank = 0;
  int every = 1;
  /// The state that training goes on with lies in this buffer, and will be changed there.
  std::function<void(std::span<std::byte> buffer)> live;
};
/// The arenas lie in the buffers; `live` is called at once, and whenever another buffer has become the live
/// one.
std::unique_ptr<LocalLevel> make_host_local_level(LocalLevelParts parts);
/// The arenas are copied from device memory by the side stream, and back to it by adopt(). There is no
/// `live`.
std::unique_ptr<LocalLevel> make_device_local_level(LocalLevelParts parts, device::Device& device,
                                                    const StateArenas& arenas);

}  // namespace holdfast::train
