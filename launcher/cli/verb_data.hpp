#pragma once
// `holdfast data submit ...`: `data prepare` as jobs. holdfast-tool does every other `holdfast data ...`.
#include <string>
#include <vector>

namespace holdfast::launcher {

/// `typed`: the arguments after "data submit". Returns the exit code; throws Error.
int submit_data(const std::vector<std::string>& typed);

}  // namespace holdfast::launcher
