#pragma once
// What makes a run directory or a checkpoint unfit for the run that would go on from it.
#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/index/state.hpp"
#include "src/base/error.hpp"

namespace holdfast::preflight {

/// That a run with `expected` may go on from a checkpoint with `found`, at `path`. Throws Error (usage): it
/// is of another model, or, unless `other_numerics`, was computed with other arithmetic. Returns the
/// difference of the arithmetic, or "".
std::string require_facts(const checkpoint::Facts& found, const checkpoint::Facts& expected,
                          const std::filesystem::path& path, bool other_numerics);

/// What is said of a checkpoint that run.resume names and that cannot be used.
Error cannot_resume(Exit exit, const std::filesystem::path& path, const std::string& why);
/// What is said where run.resume is none and the directory has a run already: Error (usage).
Error holds_a_run(const std::filesystem::path& run, std::int64_t newest_step);

}  // namespace holdfast::preflight
