#include "src/config/alternatives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "src/config/bind.hpp"
#include "src/config/refuse.hpp"

namespace holdfast::config {
namespace {

struct Alternatives {
  const char *one, *other;  ///< the other is a number that is 0 where it is not given
};
constexpr std::array all_alternatives = {Alternatives{"train.steps", "train.epochs"},
                                         Alternatives{"optim.warmup_steps", "optim.warmup_ratio"}};

/// Where a value comes from; what is larger takes precedence.
enum class Source { none, file, environment, flag };

Source source_of(const std::string& origin) {
  if (origin == "default") return Source::none;
  if (origin == "flag") return Source::flag;
  return origin.starts_with("environment ") ? Source::environment : Source::file;
}

const Setting<RunConfig>& setting_called(std::string_view name) {
  return *std::ranges::find(run_settings(), name, &Setting<RunConfig>::name);
}

void settle(Loaded& loaded, const Alternatives& two, bool resolved) {
  const auto& one = setting_called(two.one);
  const auto& other = setting_called(two.other);
  if (std::get<double>(other.get(loaded.config)) == 0) return;  // the one counts, or its default
  std::string &of_one = loaded.origin[two.one], &of_other = loaded.origin[two.other];
  const Source first = source_of(of_one), second = source_of(of_other);
  if (first == second) {
    if (resolved && first == Source::file) return;
    refuse(fmt::format("{} and {} are both set", two.one, two.other),
           of_one == of_other ? fmt::format("both by {}", of_one) : fmt::format("{}, {}", of_one, of_other),
           fmt::format("Leave one of them out: {}, or {}?", two.one, two.other));
  }
  const bool other_counts = second > first;
  if (other_counts)
    one.set(loaded.config, std::int64_t{0});
  else
    other.set(loaded.config, 0.0);
  (other_counts ? of_one : of_other) = other_counts ? two.other : two.one;
}

}  // namespace

void settle_alternatives(Loaded& loaded, bool resolved, ErrorList& refused) {
  for (const Alternatives& two : all_alternatives) refused.of([&] { settle(loaded, two, resolved); });
}

bool is_replaced(const Loaded& loaded, const std::string& setting) {
  return std::ranges::any_of(all_alternatives, [&](const Alternatives& two) {
    const std::string& origin = loaded.origin.at(setting);
    return origin == two.one || origin == two.other;
  });
}

}  // namespace holdfast::config
