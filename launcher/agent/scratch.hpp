#pragma once
// What an agent keeps on its own node, in memory, where no path has spaces and no other user looks.
#include <filesystem>
#include <string>

#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// /dev/shm/holdfast-UID-HASH, HASH of the run directory's path: the same on every node.
struct Scratch {
  std::filesystem::path folder;
  std::string node;
  std::filesystem::path socket() const { return folder / ("agent-" + node + ".sock"); }
  /// Link to this program: a path that mpirun can split at spaces, and that its daemons find on their nodes
  /// too.
  std::filesystem::path program() const { return folder / "holdfast"; }
  std::filesystem::path claim() const { return folder / "run"; }
  std::filesystem::path hosts(int attempt) const {
    return folder / ("hosts-" + node + "-" + std::to_string(attempt));
  }
};

Scratch scratch_of(const RunDir& run, const std::string& node);
/// Creates it, 0700; an Error when the name is taken by another user.
void make_scratch(const Scratch& scratch);
/// Somebody lives in it, for as long as the descriptor is open.
files::Fd hold_scratch(const Scratch& scratch);
/// The same, and says whose it is. `local`: checkpoint.local.
files::Fd claim_scratch(const Scratch& scratch, const RunDir& run, const std::string& local);
/// Removes what this user's other runs left in this node's memory when they were killed whole: scratch,
/// flight records and local level of every run that no agent holds a claim on and no process lives of.
void sweep_node(const Scratch& own);
/// Removes what is this node's, and the folder unless another agent of the run lives in it: then false.
bool remove_scratch(const Scratch& scratch);

/// Removes the run's local level from this node: nobody else would, and it lies in the memory of whoever
/// comes next. `local`: checkpoint.local. Nothing of other runs is touched.
void remove_local_level(const RunDir& run, const std::string& local);

}  // namespace holdfast::launcher
