#pragma once
// The same program on every node of an allocation: one step each, ended when its time is over.
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

/// A folder of this user alone (0700) inside `inside`, removed with what is in it. Other nodes must see it.
class MeetingPlace {
 public:
  /// Throws Error when it cannot be made.
  explicit MeetingPlace(const std::filesystem::path& inside);
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Steps that run, one on each node. Those still there at the end are killed.
class Steps {
 public:
  /// Starts `command` on every one of `nodes`; its output goes to `folder`/NODE.out, which the node itself
  /// opens. `gpus`: that the job has on each.
  Steps(const slurm::Cluster& cluster, slurm::JobId job, const std::vector<std::string>& nodes,
        const std::map<std::string, int>& gpus, const std::vector<std::string>& command,
        const std::filesystem::path& folder);
  ~Steps();
  Steps(const Steps&) = delete;
  /// Until all have ended, or the limit.
  void wait(Millis limit);

 private:
  std::vector<pid_t> running_;
};

struct NodeReport {
  std::string node;
  std::vector<Finding> findings;
};
/// What a node's doctor has written (report_json); one critical finding when it has not, or something else.
NodeReport read_report(const std::string& node, const std::filesystem::path& output);

/// A line for each node, the worst first, and its bad findings below.
std::string nodes_text(const std::vector<NodeReport>& reports);
nlohmann::json nodes_json(const std::vector<NodeReport>& reports);
/// All findings, each with its node's name.
std::vector<Finding> all_findings(const std::vector<NodeReport>& reports);

}  // namespace holdfast::launcher
