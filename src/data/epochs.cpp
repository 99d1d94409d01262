#include "src/data/epochs.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/error.hpp"

namespace holdfast::data {

std::int64_t samples_of_epochs(double epochs, std::int64_t windows) {
  return std::llround(epochs * static_cast<double>(windows));
}

std::int64_t steps_of_epochs(double epochs, std::int64_t windows, int batch) {
  expects(epochs > 0 && windows > 0 && batch > 0, "epochs of a run");
  const std::int64_t samples = samples_of_epochs(epochs, windows);
  return std::min(samples, windows) < batch ? 0 : (samples + batch - 1) / batch;
}

double epochs_of_steps(std::int64_t steps, std::int64_t windows, int batch) {
  expects(windows > 0 && batch > 0, "epochs of a run");
  return static_cast<double>(steps) * batch / static_cast<double>(windows);
}

}  // namespace holdfast::data
