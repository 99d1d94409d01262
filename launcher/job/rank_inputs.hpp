#pragma once
// Checks the files that ranks will read when a job is planned or submitted: files that ranks would refuse
// later are refused now, with the same errors.
#include <vector>

#include "src/base/error.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// Throws Error (usage) for files that exist and that ranks would refuse: token files of another form,
/// vocabulary, length or tokenizer; a program that is not executable. Returns an Error (usage) for each file
/// that does not exist: token files, weights, adapters, the program. Settings without a file are skipped.
std::vector<Error> check_rank_inputs(const config::RunConfig& config, const config::ModelShape& model);

}  // namespace holdfast::launcher
