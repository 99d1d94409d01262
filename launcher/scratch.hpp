#pragma once
// What an agent keeps on its own node, in memory, where no path has spaces and no other user looks.
#include <filesystem>
#include <string>

#include "src/base/run_dir.hpp"

namespace holdfast::launcher {

/// /dev/shm/holdfast-UID-HASH-NODE, HASH of the run directory's path.
struct Scratch {
  std::filesystem::path folder;
  std::filesystem::path socket() const { return folder / "agent.sock"; }
  std::filesystem::path program() const { return folder / "holdfast"; }  ///< link to this program, a path mpirun can split at spaces
  std::filesystem::path hosts(int attempt) const { return folder / ("hosts-" + std::to_string(attempt)); }
};

Scratch scratch_of(const RunDir& run, const std::string& node);
/// Creates it, 0700; an Error when the name is taken by another user.
void make_scratch(const Scratch& scratch);

}  // namespace holdfast::launcher
