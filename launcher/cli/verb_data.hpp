#pragma once
// `holdfast data submit ...`: `data prepare` as jobs. Every other `holdfast data ...` is holdfast-tool's.
#include <string>
#include <vector>

namespace holdfast::launcher {

/// `typed`: what stands behind "data submit". The exit code; throws Error.
int submit_data(const std::vector<std::string>& typed);

}  // namespace holdfast::launcher
