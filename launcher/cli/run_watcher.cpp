#include "launcher/cli/run_watcher.hpp"

#include "launcher/cli/run_facts.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace {

class IntoView : public sinks::Sink {
 public:
  explicit IntoView(watch::View& view) : view_(view) {}
  void restart() override { view_.metrics = {}; }
  void take(const nlohmann::json& line) override {
    report::take(view_.metrics, line);
    view_.status.last_step = line;
  }
  void flush() override {}

 private:
  watch::View& view_;
};

}  // namespace

RunWatcher::RunWatcher(RunDir run) : run_(run), events_(std::move(run)) {
  read_settings(run_, view_.status);
  metrics_ = std::make_unique<sinks::MetricsFeed>(view_.status.own_trainer ? run_.metrics()
                                                                           : run_.reported_metrics());
  into_view_.push_back(std::make_unique<IntoView>(view_));
}

void RunWatcher::look_at_events() {
  if (!events_.look()) return;
  view_.events = events_.events();
  replayed_ = {};
  for (const auto& entry : view_.events) apply(replayed_, entry);
  read_settings(run_, view_.status);  // a new job may have others
  if (files::is_there(run_.nodes())) view_.status.roster = read_roster(run_);
}

void RunWatcher::look() {
  view_.now = unix_seconds();
  view_.gap.clear();
  try {
    look_at_events();
    metrics_->feed(into_view_);
  } catch (const Error& error) {
    view_.gap = error.what();
  }
  view_.status.state = replayed_;
  count_steps(view_.status);
}

}  // namespace holdfast::launcher
