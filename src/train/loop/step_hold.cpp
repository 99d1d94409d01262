#include "src/train/loop/step_hold.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "src/base/log.hpp"

namespace holdfast::train {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr Seconds glance{0.05};

}  // namespace

HoldTerms read_hold(std::string_view text) {
  std::istringstream words{std::string(text)};
  double least = 0, longest = 0;
  words >> least >> longest;
  return {Seconds(std::max(least, 0.0)), Seconds(std::max(longest, 0.0))};
}

const std::optional<HoldTerms>& StepHold::look() {
  std::ifstream file(run_.hold());
  std::error_code unknown;
  if (file) {
    if (!held_) log::info("the run is held until {} is gone", run_.hold().string());
    held_ = read_hold(std::string(std::istreambuf_iterator<char>(file), {}));
  } else if (std::filesystem::exists(run_.path, unknown)) {
    held_.reset();
  }
  return held_;
}

void StepHold::before(std::int64_t step, const std::function<void()>& alive) {
  const auto came = Clock::now();
  while (const auto& held = look()) {
    const auto now = Clock::now();
    const Seconds left =
        step < last_step_ ? held->least_step - (now - began_) : held->longest_end - (now - came);
    if (left <= Seconds(0)) break;
    alive();
    std::this_thread::sleep_for(std::min(left, glance));
  }
  began_ = Clock::now();
}

}  // namespace holdfast::train
