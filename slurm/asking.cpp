#include "slurm/asking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "slurm/environment.hpp"
#include "slurm/hostlist.hpp"
#include "slurm/replies.hpp"
#include "slurm/tools.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {

using std::chrono::milliseconds;

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The value of "Name=value" among words.
std::optional<std::string_view> value_of(std::string_view line, std::string_view name) {
  for (const auto word : split(line, ' '))
    if (word.starts_with(name) && word.size() > name.size() && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  return std::nullopt;
}

std::optional<double> seconds_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value > 0
             ? std::optional(static_cast<double>(value))
             : std::nullopt;
}

std::vector<std::string> names_in(std::string_view hostlist) {
  try {
    return expand(hostlist);
  } catch (const Error&) {
    return {};
  }
}

Finished ask(std::vector<std::string> argv, milliseconds limit, Asking how) {
  const std::string tool = argv.front();
  Command command;
  command.argv = std::move(argv);
  command.argv.front() = tool_path(tool);
  command.environment = how.environment ? std::move(how.environment) : tool_environment();
  command.block_sigterm = how.block_sigterm;
  Finished done;
  try {
    done = run(command, limit);
  } catch (const Error& error) {
    throw Error(Exit::runtime, "SLURM's tool '" + tool + "' cannot be started", error.why(),
                "Is this a login node of the cluster, with SLURM's client tools in PATH?");
  }
  if (!done.timed_out) return done;
  const bool accounting = tool == "sacct" || tool == "sacctmgr";
  throw Error(Exit::transient, accounting ? "SLURM's accounting does not answer" : "SLURM does not answer",
              fmt::format("'{}' took longer than {:.1f} s", tool, 1e-3 * static_cast<double>(limit.count())),
              fmt::format("Try again when {} is back.", accounting ? "slurmdbd" : "slurmctld"));
}

std::string answer(const std::vector<std::string>& argv, milliseconds limit) {
  Finished done = ask(argv, limit);
  if (done.status != 0)
    throw Error(kind_of_failure(done.err), "'" + argv.front() + "' failed", complaint(done.err));
  return std::move(done.out);
}

}  // namespace holdfast::slurm
