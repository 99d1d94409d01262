#pragma once
// What ranks will read, looked at where a job is planned or submitted: what they would refuse when the queue
// has let them start is refused now, in the same words.
#include <vector>

#include "src/base/error.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// Throws Error (usage) for what is there and ranks would refuse: token files of another form, vocabulary,
/// length or tokenizer; a program that is none. Returns an Error (usage) for each file that is not there:
/// token files, weights, adapters, the program. What is not named is passed over.
std::vector<Error> check_rank_inputs(const config::RunConfig& config, const config::ModelShape& model);

}  // namespace holdfast::launcher
