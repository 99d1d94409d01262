#pragma once
// Whoever reads a checkpoint of a run that may be alive holds a lease on it: a file beside it, which
// retention (of that run, on another machine) respects. The reader renews it; when the reader dies, it
// expires. Ages are differences of times that the storage itself gives to files, so clocks of machines do not
// matter.
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/index/catalog.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// A lease that was not renewed for so long has expired.
constexpr std::chrono::seconds lease_lasts{600};

class Lease {
 public:
  /// On a committed folder of a folder of checkpoints; anything else is nobody's to remove, and needs none.
  /// What is there when this returns stays: where retention is just about to remove the step, it waits for
  /// that, ten seconds at most. A thread renews the lease. Never throws: where the folder cannot be written,
  /// why_not() says so, and the checkpoint can be read at its reader's risk.
  explicit Lease(const fs::path& step_dir, std::chrono::milliseconds renewed_every = lease_lasts / 10);
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  /// Gives it back. Storage that hangs holds this up for two seconds at most; the lease then expires.
  ~Lease();

  /// A sentence; "" where the lease is held or not needed.
  const std::string& why_not() const { return why_not_; }

 private:
  struct Renewal;
  std::shared_ptr<Renewal> renewal_;
  std::string why_not_;
};

/// A checkpoint, and the lease under which it is read.
struct LeasedCheckpoint {
  Lease lease;
  fs::path path;
  Manifest manifest;
};
/// Takes the lease first, then reads the manifest. Throws as read_manifest() does. What why_not() says goes
/// to the log.
LeasedCheckpoint lease_checkpoint(const fs::path& step_dir);
/// The newest sound one. One that retention takes before it is leased is no error: then it is the next one.
/// Throws as newest_sound() does.
std::optional<LeasedCheckpoint> lease_newest(const fs::path& checkpoints);

/// Steps in the folder with a lease that has not expired. Throws Error when that cannot be told: then nothing
/// may be removed.
std::set<std::int64_t> leased_steps(const fs::path& checkpoints);
/// For who has just asked for a step to stay, by a lease or a pin: retention that had looked for these before
/// has put its trash up first, and may be about to take the step. Returns when it has taken the step or left
/// it, after ten seconds at most: trash that stays is of somebody who died.
void wait_for_retention(const fs::path& checkpoints, std::int64_t step);
/// Removes the files of leases that have expired.
void sweep_leases(const fs::path& checkpoints);

}  // namespace holdfast::checkpoint
