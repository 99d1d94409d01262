#include "src/config/shown.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "src/base/files.hpp"
#include "src/config/load.hpp"

namespace holdfast::config {

bool may_hold_secrets(std::string_view key) {
  constexpr std::array<std::string_view, 4> lists = {"rank.environment", "rank.command", "slurm.extra",
                                                     "container.extra"};
  return std::ranges::find(lists, key) != lists.end();
}

RunConfig without_secrets(RunConfig config) {
  for (auto& variable : config.rank.environment)
    variable = variable.substr(0, variable.find('=')) + "=" + not_shown;
  const auto hide = [](std::vector<std::string>& words, std::size_t from) {
    for (std::size_t i = from; i < words.size(); ++i) words[i] = not_shown;
  };
  hide(config.rank.command, 1);
  hide(config.slurm.extra, 0);
  hide(config.container.extra, 0);
  return config;
}

void write_settings(const RunDir& run, const RunConfig& config) {
  files::replace_atomically(run.settings(), to_toml(without_secrets(config)));
  files::replace_atomically(run.config(), to_toml(config), files::for_owner);
}

RunConfig read_settings(const RunDir& run) {
  const bool not_ours = ::access(run.config().c_str(), R_OK) != 0 && files::is_there(run.settings());
  return load(not_ours ? run.settings() : run.config()).config;
}

}  // namespace holdfast::config
