#include <csignal>
#include <ctime>
#include <utility>

#include "launcher/cli/run_facts.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/report/facts.hpp"
#include "launcher/sinks/openmetrics.hpp"
#include "launcher/sinks/tensorboard.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/rank_promises.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher {
namespace {

struct MetricsOptions {
  std::string run, tensorboard, openmetrics;
  bool follow = false;
};

using Sinks = std::vector<std::unique_ptr<sinks::Sink>>;

/// What can be read of the run's record goes to `prom`, if there is one. Returns whether the run is over for
/// good.
bool look_at_record(const RunDir& run, sinks::OpenMetrics* prom) {
  const StatusFacts facts = facts_of(run);
  if (prom) prom->record(facts);
  return facts.state.over_for_good();
}

/// Until the run has ended for good, or a signal asks this program to end. After the first look, what cannot
/// be read or written is tried again.
void follow_metrics(const RunDir& run, sinks::MetricsFeed& feed, const Sinks& out, sinks::OpenMetrics* prom) {
  sigset_t ends;
  ::sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&ends, signal);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  constexpr timespec pause{2, 0};
  constexpr int looks_between = 5;
  bool fails = false;
  for (int looks = 0;; ++looks) {
    bool over = false;
    try {
      over = looks % looks_between == 0 && look_at_record(run, prom);
      feed.feed(out);  // once more when it is over
      if (std::exchange(fails, false)) log::info("the metrics are written again");
    } catch (const Error& error) {
      if (looks == 0) throw;
      over = false;
      if (!std::exchange(fails, true)) log::warn("{}: trying again every 2 s", error.what());
    }
    if (over || ::sigtimedwait(&ends, nullptr, &pause) > 0) return;
  }
}

}  // namespace

void add_metrics(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand(
      "metrics", "Give the metrics of a run to TensorBoard or to Prometheus, beside the run");
  const auto options = std::make_shared<MetricsOptions>();
  verb->add_option("RUN", options->run, "The run directory, its name in runs/, or the job's id")->required();
  verb->add_option("--tensorboard", options->tensorboard,
                   "Write an event file for TensorBoard in this folder")
      ->type_name("FOLDER");
  auto* follow = verb->add_flag("-f,--follow", options->follow,
                                "Write what comes, over all attempts, until the run has ended for good");
  verb->add_option(
          "--openmetrics", options->openmetrics,
          "Keep the newest values in this file (NAME.prom) for node_exporter; it goes when this ends")
      ->type_name("FILE")
      ->needs(follow);
  verb->callback([options, &exit_code] {
    if (options->tensorboard.empty() && options->openmetrics.empty())
      throw Error(Exit::usage, "the metrics have nowhere to go",
                  "neither --tensorboard nor --openmetrics is given",
                  "'holdfast metrics " + options->run + " --tensorboard FOLDER'");
    slurm::ClusterCli cluster;
    const RunDir run = find_run(options->run, cluster);
    const auto config = config::read_settings(run);
    Sinks out;
    if (!options->tensorboard.empty())
      out.push_back(std::make_unique<sinks::TensorBoard>(options->tensorboard));
    sinks::OpenMetrics* prom = nullptr;
    if (!options->openmetrics.empty()) {
      auto sink = std::make_unique<sinks::OpenMetrics>(options->openmetrics, config.run.name);
      prom = sink.get();
      out.push_back(std::move(sink));
    }
    sinks::MetricsFeed feed(report::metrics_of(run, config::promises_of(config.rank)));
    if (options->follow)
      follow_metrics(run, feed, out, prom);
    else
      feed.feed(out);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher
