#include "launcher/cli/run_watcher.hpp"

#include <sys/statvfs.h>

#include <algorithm>

#include "checkpoint/index/catalog.hpp"
#include "launcher/cli/run_facts.hpp"
#include "launcher/report/facts.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::uint64_t most_metrics = 64u << 20;  // bytes, about 200000 steps: what is older is not drawn
constexpr std::size_t most_events = 1000;          // for the screen; the state follows from all of them
constexpr double least_silence_s = 30, silence_steps = 10;

/// Bytes of the files of a checkpoint; 0: it is gone.
double size_of_folder(const std::filesystem::path& folder) {
  double bytes = 0;
  for (const auto& name : files::list(folder)) {
    std::error_code error;
    const auto size = files::fs::file_size(folder / name, error);
    if (!error) bytes += static_cast<double>(size);
  }
  return bytes;
}

/// Seconds between the newest two checkpoints that became durable; 0: there are no two.
double between_checkpoints(const std::vector<LogEntry>& events) {
  std::optional<double> newest;
  for (auto entry = events.rbegin(); entry != events.rend(); ++entry) {
    if (!std::holds_alternative<events::CheckpointDurable>(entry->event)) continue;
    if (newest) return *newest - entry->envelope.unix;
    newest = entry->envelope.unix;
  }
  return 0;
}

}  // namespace

class RunWatcher::IntoView : public sinks::Sink {
 public:
  explicit IntoView(RunWatcher& of) : of_(of) {}
  void restart() override {
    of_.view_.metrics = {};
    of_.tape_.clear();
  }
  void take(const nlohmann::json& line) override {
    report::take(of_.view_.metrics, line);
    of_.view_.status.last_step = line;
    of_.tape_.add(line);
  }
  void flush() override {}

 private:
  RunWatcher& of_;
};

RunWatcher::RunWatcher(RunDir run) : run_(run), events_(std::move(run)) {
  view_.status.name = run_.path.filename().string();
  into_view_.push_back(std::make_unique<IntoView>(*this));
}

void RunWatcher::look_at_settings() {
  const auto config = config::read_settings(run_);
  take_settings(config, view_.status);
  keeping_ = config.checkpoint;
  if (!metrics_)
    metrics_ =
        std::make_unique<sinks::MetricsFeed>(report::metrics_of(run_, view_.status.promises), most_metrics);
}

void RunWatcher::look_at_events() {
  if (!events_.look()) return;
  auto all = events_.events();
  replayed_ = {};
  for (const auto& entry : all) apply(replayed_, entry);
  if (all.size() > most_events) all.erase(all.begin(), all.end() - most_events);
  view_.events = std::move(all);
  look_at_settings();  // a new job may have others
  if (files::is_there(run_.nodes())) view_.status.roster = read_roster(run_);
  if (auto owner = read_owner(run_)) owner_ = std::move(owner);
}

void RunWatcher::look_at_disk() {
  struct statvfs facts {};
  if (::statvfs(run_.checkpoints().c_str(), &facts) != 0) return;
  if (!view_.disk) view_.disk.emplace();
  watch::Disk& disk = *view_.disk;
  disk.free_bytes = static_cast<double>(facts.f_bavail) * static_cast<double>(facts.f_frsize);
  disk.kept = static_cast<int>(replayed_.durable.size());
  disk.keep = keeping_.keep;
  disk.archive_h = keeping_.archive_h;
  disk.between_s = between_checkpoints(view_.events);
  if (replayed_.durable_step <= 0 || replayed_.durable_step == measured_step_) return;
  disk.checkpoint_bytes =
      size_of_folder(checkpoint::committed_path(run_.checkpoints(), replayed_.durable_step));
  measured_step_ = replayed_.durable_step;
}

bool RunWatcher::silent() const {
  const auto& status = view_.status;
  if (status.state.over_for_good()) return false;
  const double heard = std::max(replayed_.last_at, last_step_at(status).value_or(0));
  const double step_s = view_.metrics.step_s.count() > 0 ? view_.metrics.step_s.mean() : 0;
  return view_.now - heard > std::max(least_silence_s, silence_steps * step_s);
}

watch::View RunWatcher::view_with_events(std::vector<LogEntry> events) const {
  watch::View view = view_;
  view.events = std::move(events);
  return view;
}

SeenRun RunWatcher::look() {
  view_.now = unix_seconds();
  view_.gap.clear();
  try {
    if (!metrics_) look_at_settings();
    look_at_events();
    metrics_->feed(into_view_);
    look_at_disk();
  } catch (const Error& error) {
    view_.gap = error.what();
  }
  view_.status.state = replayed_;
  count_steps(view_.status);
  return {view_, owner_, silent()};
}

}  // namespace holdfast::launcher
