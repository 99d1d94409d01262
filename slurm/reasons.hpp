#pragma once
// Why a job waits: SLURM's reasons. Pure.
#include <string>
#include <string_view>

namespace holdfast::slurm {

/// "AssocGrpNodeLimit" -> "more nodes than the account's jobs may have together"; "" for a reason that is not
/// known.
std::string reason_in_words(std::string_view reason);
/// Waiting does not help: the job, or a limit, must be changed.
bool never_starts(std::string_view reason);

}  // namespace holdfast::slurm
