#include "launcher/agent/leader/job_settings.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/config/load.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher {

JobSettings::JobSettings(const RunDir& run, int job_term) : run_(run), job_term_(job_term) {
  // Whatever the umask: where others may write to it, no agent takes the run directory any more.
  if (::mkdir(run_.configs().c_str(), 0750) != 0 && errno != EEXIST)
    throw Error(Exit::transient, "cannot create " + run_.configs().string(), std::strerror(errno));
  for (const std::string& name : files::list_or_fail(run_.configs())) {
    int term = 0;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), term);
    if (wrong == std::errc() && std::string_view(end) == ".toml") kept_ = std::max(kept_, term);
  }
}

std::filesystem::path JobSettings::file_of(int term) const {
  return run_.configs() / fmt::format("{:04}.toml", term);
}

std::optional<events::SettingsChanged> JobSettings::changed() const {
  if (kept_ == 0) return std::nullopt;
  events::SettingsChanged out;
  try {
    for (const auto& change :
         config::changed_settings(config::load(file_of(kept_)).config, config::load(run_.config()).config))
      out.settings[change.key] = config::may_hold_secrets(change.key)
                                     ? events::SettingValues{config::not_shown, config::not_shown}
                                     : events::SettingValues{change.before, change.now};
  } catch (const Error& error) {
    log::warn("the settings of the job before cannot be compared: {}", error.what());
  }
  return out.settings.empty() ? std::nullopt : std::optional(std::move(out));
}

void JobSettings::keep() const {
  files::replace_atomically(file_of(job_term_), files::read_text(run_.config()), files::for_owner);
}

}  // namespace holdfast::launcher
