#include "src/optim/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "src/base/as_size.hpp"

namespace holdfast::optim {
namespace {

static_assert(std::is_trivially_copyable_v<GuardState>);

using config::GuardAction;
using Action = GuardFinding::Action;

/// Of the newest `window` values of a ring. Of an even number the lower one of the two in the middle: always
/// a value that was there.
double median(const std::array<double, max_guard_steps>& ring, std::uint64_t steps, std::size_t window) {
  std::array<double, max_guard_steps> sorted;
  for (std::size_t i = 0; i < window; ++i) sorted[i] = ring[(steps - 1 - i) % max_guard_steps];
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((window - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(window));
  return *middle;
}

void add(std::string& text, const std::string& more) { text += (text.empty() ? "" : ", ") + more; }

std::string spike(const char* name, double value, double factor, double usual, std::size_t window) {
  if (factor == 0 || !(value > factor * usual)) return "";
  return fmt::format("{} {:.6g} is above {:.6g} times {:.6g}, the median of {} steps", name, value, factor,
                     usual, window);
}

/// The action as the settings want it, or stop once there were enough skips.
GuardFinding carry_out(GuardAction wanted, std::string text, const GuardState& state,
                       const config::Guard& settings) {
  if (wanted == GuardAction::report) return {Action::report, std::move(text)};
  if (wanted == GuardAction::stop) return {Action::stop, std::move(text)};
  if (state.skips >= static_cast<std::uint64_t>(settings.max_skips))
    return {Action::stop, fmt::format("{}; the run has skipped {} times, as often as guard.max_skips allows",
                                      text, state.skips)};
  const bool back = wanted == GuardAction::rollback;
  return {back ? Action::rollback : Action::skip,
          fmt::format("{}; {} {} of at most {}", text, back ? "rollback, skip" : "skip", state.skips + 1,
                      settings.max_skips)};
}

}  // namespace

GuardFinding assess(const GuardState& state, const config::Guard& settings, double loss, double norm) {
  std::string text;
  if (!std::isfinite(loss)) add(text, fmt::format("loss is {}", loss));
  if (!std::isfinite(norm)) add(text, fmt::format("gradient norm is {}", norm));
  if (!text.empty()) return carry_out(settings.on_nan, text, state, settings);
  const auto window = as_size(settings.window);
  if (state.steps < window) return {};
  for (const auto& seen :
       {spike("loss", loss, settings.loss_factor, median(state.losses, state.steps, window), window),
        spike("gradient norm", norm, settings.norm_factor, median(state.norms, state.steps, window), window)})
    if (!seen.empty()) add(text, seen);
  if (text.empty()) return {};
  return carry_out(settings.on_spike, text, state, settings);
}

GuardState after(GuardState state, const GuardFinding& finding, double loss, double norm) {
  if (finding.action == Action::skip || finding.action == Action::rollback) ++state.skips;
  if (finding.action != Action::ok && finding.action != Action::report) return state;
  const std::size_t at = state.steps++ % max_guard_steps;
  state.losses[at] = loss;
  state.norms[at] = norm;
  return state;
}

}  // namespace holdfast::optim
