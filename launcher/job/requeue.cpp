#include "launcher/job/requeue.hpp"

#include <future>
#include <set>
#include <thread>

#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/policy.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

namespace {
constexpr std::chrono::seconds ledger_limit{5};
}

std::map<std::string, NodeHistory> histories(const std::string& folder, const Roster& roster) {
  if (folder.empty()) return {};
  std::vector<std::string> names;
  for (const auto& node : roster.nodes) names.push_back(node.name);
  struct Read {
    std::map<std::string, NodeHistory> histories;
    std::string problem;
  };
  auto promise = std::make_shared<std::promise<Read>>();
  auto future = promise->get_future();
  std::thread([promise, folder, names] {
    Read read;
    try {
      read.histories = read_ledger(folder, names, unix_seconds(), read.problem);
    } catch (const std::exception& error) {
      read.problem = error.what();
    }
    promise->set_value(std::move(read));
  }).detach();
  if (future.wait_for(ledger_limit) != std::future_status::ready) {
    log::warn("the ledger of nodes {} does not answer; continuing without it", folder);
    return {};
  }
  Read read = future.get();
  if (!read.problem.empty()) log::warn("the ledger of nodes: {}", read.problem);
  return std::move(read.histories);
}

void print_admin_lines(const RunDir& run, const std::string& job) {
  std::set<std::string> lines;
  bool ours = false;
  for (const auto& entry : read_events(run)) {
    if (const auto* elected = std::get_if<events::LeaderElected>(&entry.event)) ours = elected->job == job;
    const auto* ended = std::get_if<events::AttemptEnded>(&entry.event);
    if (ours && ended && !ended->admin.empty()) lines.insert(ended->admin);
  }
  for (const auto& line : lines) log::warn("for your administrator: {}", line);
}

slurm::OwnExclusions exclusions_of(const RunDir& run, slurm::Cluster& cluster, slurm::JobId job,
                                   const RunState& before, const std::map<std::string, NodeHistory>& past) {
  try {
    auto unwanted = before.outcome ? before.outcome->exclude : std::vector<std::string>{};
    const auto doubtful = nodes_in_doubt(before, past);
    unwanted.insert(unwanted.end(), doubtful.begin(), doubtful.end());
    const auto own = slurm::own_exclusions(slurm::read_exclusions(run.excluded(), job),
                                           cluster.other_nodes(job).excluded, unwanted, unix_seconds());
    slurm::write_exclusions(run.excluded(), job, own);
    return own;
  } catch (const Error& error) {
    log::warn("the nodes that job {} excludes are not known, and stay excluded: {}", job, error.what());
    return {};
  }
}

void requeue_job(const RunDir& run, slurm::Cluster& cluster, slurm::JobId job, const Roster& roster,
                 const std::string& ledger, const slurm::OwnExclusions& own) {
  const RunState state = replay(run);
  const auto failed = state.outcome ? state.outcome->exclude : std::vector<std::string>{};
  const auto doubtful = nodes_in_doubt(state, histories(ledger, roster));
  slurm::requeue_elsewhere(cluster, job, failed, static_cast<int>(roster.nodes.size()), doubtful,
                           slurm::expired(own, unix_seconds()));
}

}  // namespace holdfast::launcher
