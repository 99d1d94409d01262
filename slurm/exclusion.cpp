#include "slurm/exclusion.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "slurm/batch_script.hpp"
#include "slurm/commands.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::slurm {

namespace {

constexpr std::size_t reason_limit = 120;  // of a line to paste

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Exclusion exclusion(const OtherNodes& around, const std::vector<std::string>& failed, int wanted) {
  std::vector<std::string> all = around.excluded;
  for (const auto& name : failed)
    if (!among(all, name)) all.push_back(name);
  if (all.size() == around.excluded.size()) return {};
  std::ptrdiff_t left = 0;  // in the partition with the most
  for (const auto& nodes : around.partitions)
    left = std::max(left, std::count_if(nodes.begin(), nodes.end(), [&](const Node& node) {
                      return node.usable && !among(all, node.name);
                    }));
  if (left < wanted)
    return {{},
            fmt::format("the job needs {} nodes and only {} others of its partition are up", wanted, left)};
  return {all, ""};
}

void requeue_elsewhere(Cluster& cluster, JobId job, const std::vector<std::string>& failed, int wanted,
                       const std::vector<std::string>& doubtful) {
  std::vector<std::string> unwanted = failed;
  unwanted.insert(unwanted.end(), doubtful.begin(), doubtful.end());
  Exclusion change;
  try {
    // Queried before the requeue: after it SLURM ends this process, too, and there is little time.
    if (!unwanted.empty()) {
      const OtherNodes around = cluster.other_nodes(job);
      change = exclusion(around, unwanted, wanted);
      if (!change.why_not.empty() && !doubtful.empty() && !failed.empty()) {
        log::warn("job {} may get {} again: {}", job, compress(doubtful), change.why_not);
        unwanted = failed;
        change = exclusion(around, failed, wanted);
      }
    }
  } catch (const Error& error) {
    change.why_not = error.what();
  }
  cluster.requeue(job);
  try {
    if (!change.nodes.empty()) {
      cluster.exclude(job, change.nodes);
      log::warn("job {} will not run on {}", job, compress(change.nodes));
    }
  } catch (const Error& error) {
    change.why_not = error.what();
  }
  if (!change.why_not.empty())
    log::warn("job {} may get {} again: {}", job, compress(unwanted), change.why_not);
}

std::string drain_line(const std::string& node, const std::string& reason) {
  std::string words = "holdfast: " + reason.substr(0, reason_limit);
  std::replace_if(
      words.begin(), words.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f || c == '\''; }, ' ');
  return shown(drain_argv(node, words));
}

}  // namespace holdfast::slurm
