#include "launcher/job/requeue.hpp"

#include <set>
#include <utility>

#include "launcher/supervise/journal.hpp"
#include "launcher/supervise/node_record.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/within.hpp"

namespace holdfast::launcher {

namespace {
constexpr std::chrono::seconds ledger_limit{5};
}

std::map<std::string, NodeHistory> histories(const std::string& folder, const Roster& roster) {
  if (folder.empty()) return {};
  std::vector<std::string> names;
  for (const auto& node : roster.nodes) names.push_back(node.name);
  try {
    auto [read, problem] = within(ledger_limit, "the ledger of nodes " + folder, [folder, names] {
      std::string trouble;
      auto found = read_ledger(folder, names, unix_seconds(), trouble);
      return std::pair(std::move(found), trouble);
    });
    if (!problem.empty()) log::warn("the ledger of nodes: {}", problem);
    return read;
  } catch (const std::exception& error) {
    log::warn("the ledger of nodes is not read: {}", error.what());
    return {};
  }
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
    auto [unwanted, doubtful] = unwanted_nodes(before, past);
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
  auto [failed, doubtful] = unwanted_nodes(replay(run), histories(ledger, roster));
  slurm::requeue_elsewhere(cluster, job,
                           {static_cast<int>(roster.nodes.size()), std::move(failed), std::move(doubtful),
                            slurm::expired(own, unix_seconds())});
}

}  // namespace holdfast::launcher
