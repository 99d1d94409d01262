#pragma once
// Runs a program on every node of an allocation: one step each, with a time limit.
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launcher/health/finding.hpp"
#include "slurm/cluster.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {

/// A private folder (0700) inside `inside`, which the destructor removes with its files. Other nodes must see
/// it.
class SharedTempFolder {
 public:
  /// Throws Error when it cannot be created.
  explicit SharedTempFolder(const std::filesystem::path& inside);
  ~SharedTempFolder();
  SharedTempFolder(const SharedTempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Running steps, one on each node. The destructor kills those that still run.
class Steps {
 public:
  /// Starts `command` on every one of `nodes`; its output goes to `folder`/NODE.out, which the node itself
  /// opens. `gpus`: that the job has on each.
  Steps(const slurm::Cluster& cluster, slurm::JobId job, const std::vector<std::string>& nodes,
        const std::map<std::string, int>& gpus, const std::vector<std::string>& command,
        const std::filesystem::path& folder);
  ~Steps();
  Steps(const Steps&) = delete;
  /// Waits until all have ended, at most `limit`.
  void wait(Millis limit);

 private:
  std::vector<pid_t> running_;
};

struct NodeReport {
  std::string node;
  std::vector<Finding> findings;
};
/// Reads what a node's doctor has written (report_json); one critical finding when it cannot be read.
NodeReport read_report(const std::string& node, const std::filesystem::path& output);

/// A line for each node, the worst first, and its bad findings below.
std::string nodes_text(const std::vector<NodeReport>& reports);
nlohmann::json nodes_json(const std::vector<NodeReport>& reports);
/// All findings, each with its node's name.
std::vector<Finding> all_findings(const std::vector<NodeReport>& reports);

}  // namespace holdfast::launcher
