#include "launcher/drill/run_view.hpp"

#include <nlohmann/json.hpp>

#include "launcher/supervise/journal.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
constexpr std::uint64_t tail = 4096;  ///< bytes: several lines of metrics

/// The step of the last line that is whole.
std::int64_t newest_step(const fs::path& metrics) {
  if (!files::is_there(metrics)) return 0;
  std::string text = files::read_end(metrics, tail);
  text.resize(text.find_last_of('\n') == std::string::npos ? 0 : text.find_last_of('\n'));
  const json line = json_from(text.substr(text.find_last_of('\n') + 1));
  return typed<std::int64_t>(line, "step").value_or(0);
}

/// "step-N.tmp-TERM-ATTEMPT": of the live attempt. An attempt that ended during a save has left such a folder
/// too.
bool is_saving(const fs::path& checkpoints, const RunState& state) {
  if (!state.attempt_live()) return false;
  const std::string of_attempt = "-" + std::to_string(state.attempts.back().number);
  for (const auto& name : files::list(checkpoints))
    if (name.find(".tmp-") != std::string::npos && name.ends_with(of_attempt)) return true;
  return false;
}

}  // namespace

RunView read_run_view(const RunDir& run) {
  RunView view;
  view.now = unix_seconds();
  view.events = read_events(run);
  for (const auto& entry : view.events) apply(view.state, entry);
  // The file is replaced atomically at the start of each job.
  if (files::exists_or_fail(run.nodes())) view.roster = read_roster(run);
  view.step = newest_step(run.metrics());
  view.saving = is_saving(run.checkpoints(), view.state);
  return view;
}

bool has_every_step_once(const RunDir& run, std::int64_t steps) {
  if (!files::exists_or_fail(run.metrics())) return false;
  const std::string text = files::read_text(run.metrics());
  std::int64_t wanted = 1;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const json line = json_from(text.substr(begin, end - begin));
    if (typed<std::int64_t>(line, "step").value_or(-1) != wanted++) return false;
  }
  return wanted == steps + 1;
}

}  // namespace holdfast::launcher
