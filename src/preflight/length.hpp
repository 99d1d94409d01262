#pragma once
// How long a run is, where its data say so (train.epochs). Found once, before the run has settings of its
// own: from then on it has train.steps, whatever becomes of the data.
#include <cstdint>
#include <optional>

#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::preflight {

/// Samples of one pass over the data, by the header of their file; nothing for a mixture, which has no
/// epochs, and for a run without data. Throws Error as open_for() does.
std::optional<std::int64_t> samples_of_epoch(const config::RunConfig& config,
                                             const config::ModelShape& model);

/// Steps that train.epochs make of such samples. Throws Error (impossible): not one.
std::int64_t steps_of_epochs(const config::RunConfig& config, std::int64_t samples);

/// The settings with their train.steps, where these are open. Throws Error as both do.
config::RunConfig with_steps(config::RunConfig config, const config::ModelShape& model);

}  // namespace holdfast::preflight
