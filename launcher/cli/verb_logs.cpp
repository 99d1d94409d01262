#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <thread>

#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/cli/log_reader.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/supervise/journal.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/printable.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto look_again = 500ms;
constexpr int looks_per_question = 4;  // is the run over?

struct LogsOptions {
  std::string run, node;
  int rank = 0, attempt = 0;  ///< attempt 0: the newest
  std::int64_t lines = -1;
  bool job = false, follow = false;
};

/// The largest number that stands between `before` and `after` in the names of `folder`; 0: none does.
std::int64_t newest(const fs::path& folder, std::string_view before, std::string_view after = "") {
  std::int64_t out = 0;
  for (const std::string& name : files::list(folder)) {
    if (!name.starts_with(before) || !name.ends_with(after)) continue;
    std::int64_t number = 0;
    std::from_chars(name.data() + before.size(), name.data() + name.size(), number);
    out = std::max(out, number);
  }
  return out;
}

fs::path log_of(const RunDir& run, const LogsOptions& options) {
  if (!options.node.empty()) return agent_log(run, options.node);
  if (options.job) return run.logs() / fmt::format("job-{}.log", newest(run.logs(), "job-", ".log"));
  const auto attempt = options.attempt > 0 ? options.attempt : newest(run.logs(), "attempt-");
  return rank_log(run, static_cast<int>(attempt), options.rank);
}

void print(const std::string& text) {
  if (!(std::cout << text << std::flush))
    throw Error(Exit::runtime, "the log cannot be written to standard output");
}

/// Until the run has ended for good. A newer attempt's log comes behind that of the one before it.
void follow(const RunDir& run, const LogsOptions& options) {
  LogReader log(log_of(run, options), options.lines);
  bool over = false;
  for (int looks = 1;; ++looks) {
    while (true) {
      const std::string text = log.more();
      if (text.empty()) break;
      print(text);
    }
    if (const fs::path now = log_of(run, options); now != log.file() && files::is_there(now)) {
      std::cerr << fmt::format("==> {} <==\n", now.string());
      log = LogReader(now);
      continue;
    }
    if (over) return;
    if (looks % looks_per_question == 0) over = replay(run).over_for_good();  // and then looks once more
    std::this_thread::sleep_for(look_again);
  }
}

void show(const RunDir& run, const LogsOptions& options) {
  if (options.job && newest(run.logs(), "job-", ".log") == 0)
    throw Error(Exit::usage, "there is no log of a job yet", "none is in " + run.logs().string(),
                "The job makes it when it starts; 'holdfast status' says what has become of the job");
  const fs::path file = log_of(run, options);
  if (!files::is_there(file))
    throw Error(Exit::usage, "there is no such log", file.string() + " is not there",
                options.follow ? "" : "'holdfast logs -f' waits for it; 'holdfast status' says what runs");
  LogReader log(file, options.lines);
  for (std::string text = log.more(); !text.empty(); text = log.more()) print(text);
}

}  // namespace

void add_logs(CLI::App& app, int& exit_code) {
  auto* verb =
      app.add_subcommand("logs", "Print the log of a rank, a node's agent or the job, and follow it");
  const auto options = std::make_shared<LogsOptions>();
  verb->add_option("RUN", options->run, "The run directory, its name in runs/, or the job's id")->required();
  verb->add_flag("-f,--follow", options->follow,
                 "Print what comes, over all attempts, until the run has ended for good");
  verb->add_option("-n,--lines", options->lines, "Begin with the last N lines")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber.description(""));
  auto* rank = verb->add_option("--rank", options->rank, "The log of this rank (without it: rank 0)")
                   ->type_name("N")
                   ->check(CLI::NonNegativeNumber.description(""));
  auto* attempt = verb->add_option("--attempt", options->attempt, "In this attempt (without it: the newest)")
                      ->type_name("K")
                      ->check(CLI::PositiveNumber.description(""));
  auto* node = verb->add_option("--node", options->node, "The log of this node's agent")->type_name("NODE");
  auto* job = verb->add_flag("--job", options->job, "The output of the newest job's batch script");
  node->excludes(rank)->excludes(attempt)->excludes(job);
  job->excludes(rank)->excludes(attempt);
  verb->callback([options, &exit_code] {
    slurm::ClusterCli cluster;
    const RunDir run = find_run(options->run, cluster);
    write_data_from_now_on();
    if (options->follow)
      follow(run, *options);
    else
      show(run, *options);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher
