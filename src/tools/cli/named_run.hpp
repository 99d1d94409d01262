#pragma once
// Runs that a user names where a path is expected.
#include <string>

namespace holdfast::tool {

/// A path that is there; or the directory of the run that has this name, or this job. With "/best" behind one
/// of them, the checkpoint that is marked as its best. Any other word stays as it is: the verb says what is
/// wrong with it. Throws Error (usage) for a job without a run, and where no checkpoint is marked.
std::string with_run_found(const std::string& word);

}  // namespace holdfast::tool
