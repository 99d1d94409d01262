#pragma once
// Failures of nodes across jobs: one file of JSON lines per node, in a folder that the site or the user
// names. Every line is one append of at most 4 KiB, so that jobs write without locks; a line that is torn or
// malformed is skipped. The ledger only influences choices: one that cannot be read counts as empty.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace holdfast::launcher {

struct LedgerEntry {
  double time = 0;        ///< Unix seconds
  std::string job, node;  ///< job id and restart count; the node's name
  std::string cause;      ///< Diagnosis::cause, or "node lost", "silent corruption", ...
  std::string evidence;   ///< a sentence
  bool hardware = true;   ///< the node itself is to blame
  int xid = 0;            ///< 0: none
  std::string gpu;        ///< UUID or PCI address; "": none
};

/// Appends to the file of `entry.node`, and makes the folder if its parent is there (0700; in a folder that a
/// group writes, files are the group's). Throws Error; may block as long as the file system does.
void append_to_ledger(const std::filesystem::path& folder, const LedgerEntry& entry);

struct NodeHistory {
  /// Hardware failures, each fading as node_score.hpp says.
  double weight = 0;
  std::vector<LedgerEntry> last;  ///< the newest hardware failures, newest first
  /// Roster::Node::past_failures: `weight`, rounded up.
  int past_failures() const;
};
/// By name, for every one of `nodes`. A file that cannot be read counts as empty, and `problem` then says
/// why.
std::map<std::string, NodeHistory> read_ledger(const std::filesystem::path& folder,
                                               const std::vector<std::string>& nodes, double now,
                                               std::string& problem);

/// A node that fails again and again ends many jobs: with more than this weight it is a bad node.
constexpr double bad_node_weight = 3;
/// Nodes that a requeued job should not get: those that failed in this job, and bad nodes, but only the
/// worst `max_bad_nodes` of these: a fault of the network must not empty the cluster. Sorted by name.
std::vector<std::string> nodes_to_exclude(const std::set<std::string>& failed_here,
                                          const std::map<std::string, NodeHistory>& histories,
                                          int max_bad_nodes = 8);

}  // namespace holdfast::launcher
