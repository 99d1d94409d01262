#pragma once
// Failures of nodes across jobs: one file of JSON lines per node, in a folder that the site or the user
// names. Every line is one append of at most 4 KiB, so that jobs write without locks; a line that is torn or
// malformed is skipped. The ledger only influences choices: one that cannot be read counts as empty.
#include <filesystem>
#include <map>
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

/// What a failure counts that lies so far back (seconds): exp(-age / 7 days).
double faded(double age_s);
/// The sum of such counts as a number of failures: rounded up, but nothing is left of a single one after
/// three weeks.
int whole_failures(double weight);

struct NodeHistory {
  /// Hardware failures, each faded.
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

}  // namespace holdfast::launcher
