#pragma once
// The files that an agent keeps in the memory of its node, in a private folder whose path has no spaces.
#include <filesystem>
#include <string>

#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// `folder`: of control::scratch_place().
struct Scratch {
  std::filesystem::path folder;
  std::string node;
  std::filesystem::path socket() const { return folder / ("agent-" + node + ".sock"); }
  std::filesystem::path claim() const { return folder / "run"; }
  /// Copies of the programs, bin/ and lib/, and of the run's settings (resident.hpp); the term that an agent
  /// followed last, for the one after it; what processes log (log_spool.hpp).
  std::filesystem::path programs() const { return folder / ("programs-" + node); }
  RunDir settings() const { return {folder / ("settings-" + node)}; }
  std::filesystem::path term() const { return folder / ("term-" + node); }
  std::filesystem::path logs() const { return folder / ("logs-" + node); }
  /// The key of a rank, of the newest attempt that was started here.
  std::filesystem::path key(int rank) const { return folder / ("key-" + node + "-" + std::to_string(rank)); }
  /// What a rank's program may touch to show that it lives.
  std::filesystem::path heartbeat(int rank) const {
    return folder / ("heartbeat-" + node + "-" + std::to_string(rank));
  }
  /// Of the PMIx server and the ranks that it serves.
  std::filesystem::path pmix(int attempt) const {
    return folder / ("pmix-" + node + "-" + std::to_string(attempt));
  }
};

/// Where to read the run's settings: the copies, or where there are none `run`.
RunDir settings_of(const Scratch& scratch, const RunDir& run);
/// A shared lock: the folder is in use while the descriptor is open.
files::Fd hold_scratch(const Scratch& scratch);
/// Only one guardian on the node holds this; throws Error (transient) when another one does.
files::Fd hold_node(const Scratch& scratch);
/// As hold_scratch(), and writes into the folder which run it belongs to. `local_level`: its folder on this
/// node; empty: there is none.
files::Fd claim_scratch(const Scratch& scratch, const RunDir& run, const std::filesystem::path& local_level);
/// Removes files of this user's other runs from the memory of this node, for runs that were killed: scratch
/// folder and local level of every run without a lock of an agent and without a process.
void sweep_node(const Scratch& own);
/// Removes the files of this node, and the folder, unless another agent of the run uses it: then returns
/// false.
bool remove_scratch(const Scratch& scratch);

/// Removes a run's local level from this node: else it would occupy the memory of the next job. Does nothing
/// with an empty path.
void remove_local_level(const std::filesystem::path& folder);

}  // namespace holdfast::launcher
