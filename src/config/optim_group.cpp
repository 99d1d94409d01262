#include "src/config/optim_group.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <sstream>

#include "src/base/error.hpp"

namespace holdfast::config {
namespace {

const std::vector<std::string> keys = {"lr_scale", "weight_decay"};

[[noreturn]] void refuse_group(const std::string& text, std::string why, std::string hint = {}) {
  throw Error(Exit::usage, "optim.groups: \"" + text + "\" is not a group", std::move(why), std::move(hint));
}

double number_of(const std::string& text, const std::string& key, std::string_view spelled) {
  double number = 0;
  const auto* end = spelled.data() + spelled.size();
  const auto [stop, failure] = std::from_chars(spelled.data(), end, number);
  if (failure != std::errc{} || stop != end || !std::isfinite(number) || number < 0)
    refuse_group(text, fmt::format("{} must be a number of at least 0, not '{}'", key, spelled));
  return number;
}

OptimGroup parse_group(const std::string& text) {
  std::istringstream words(text);
  OptimGroup group;
  if (!(words >> group.match)) refuse_group(text, "it is empty", "Write \"GLOB lr_scale=X weight_decay=Y\"?");
  if (group.match.find('=') != std::string::npos)
    refuse_group(text, "it begins with a setting",
                 "Write the tensors' names first, for example \"*_proj.weight " + group.match + "\"?");
  std::optional<double> lr_scale;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (key != keys[0] && key != keys[1]) {
      const auto near = nearest_name(key, keys);
      refuse_group(text, fmt::format("a group has {}, not '{}'", fmt::join(keys, " and "), key),
                   near.empty() ? "" : "Did you mean " + near + "?");
    }
    if (equals == std::string::npos) refuse_group(text, key + " has no value", "Write " + key + "=NUMBER?");
    auto& field = key == keys[0] ? lr_scale : group.weight_decay;
    if (field) refuse_group(text, key + " is there twice");
    field = number_of(text, key, std::string_view(word).substr(equals + 1));
  }
  if (!lr_scale && !group.weight_decay)
    refuse_group(text, "it changes nothing", "Add lr_scale=NUMBER or weight_decay=NUMBER?");
  group.lr_scale = lr_scale.value_or(1);
  return group;
}

}  // namespace

std::vector<OptimGroup> optim_groups(const Optim& optim) {
  if (optim.groups.size() > max_optim_groups)
    throw Error(Exit::usage, fmt::format("optim.groups has {} groups", optim.groups.size()),
                fmt::format("there can be {}", max_optim_groups), "Let one glob match more tensors?");
  std::vector<OptimGroup> out;
  for (const auto& text : optim.groups) out.push_back(parse_group(text));
  return out;
}

int group_of(const std::vector<OptimGroup>& groups, std::string_view tensor) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (matches(groups[i].match, tensor)) return static_cast<int>(i) + 1;
  return 0;
}

bool matches(std::string_view glob, std::string_view name) {
  std::size_t g = 0, n = 0;
  std::size_t star = std::string_view::npos, retry = 0;  // the last `*`, and what it leaves to be matched
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      retry = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace holdfast::config
