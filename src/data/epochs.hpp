#pragma once
// How many steps a number of epochs is. Samples are counted over the whole run, so an epoch need not end with
// a step.
#include <cstdint>

namespace holdfast::data {

/// Samples that `epochs` passes over `windows` samples take.
std::int64_t samples_of_epochs(double epochs, std::int64_t windows);

/// Steps of `batch` samples that `epochs` passes over `windows` samples make; what is left over of the last
/// one is filled with the first samples of the next pass, so that none is left out. 0: there are too few for
/// one step.
std::int64_t steps_of_epochs(double epochs, std::int64_t windows, int batch);

/// The other way.
double epochs_of_steps(std::int64_t steps, std::int64_t windows, int batch);

}  // namespace holdfast::data
