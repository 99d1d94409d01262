#pragma once
// What a node has done in the jobs of a run, and what that is worth when slots are given away. Pure.
//
// A failure: the node was lost or evicted, an attempt ended by it, it computed wrongly, or its newest check
// was critical. At most one counts for each attempt: one fault shows in several ways. A doubt: its newest
// check warned, a rank on it was slow, or it may have computed wrongly.
//
// Both fade with time, as failures in the ledger do. The time is that of the job's first event: all leaders
// of a job compute the same.
#include <map>
#include <string>
#include <vector>

namespace holdfast::launcher {

/// What a failure counts that lies so far back (seconds): exp(-age / 7 days).
double faded(double age_s);
/// The sum of such counts as a number of failures: rounded up, but nothing is left of a single one after
/// three weeks.
int whole_failures(double weight);

/// Something that a node did, or that was found of it.
struct NodeMark {
  enum class What { lost, ended_attempt, evicted, computed_wrongly, critical, warned, slow, doubted };
  What what = What::lost;
  double at = 0;                  ///< Unix seconds
  int job_term = 0, attempt = 0;  ///< the job by its first term, and its newest attempt
};

/// Whether a node gets a slot: the smaller, the better.
struct NodeScore {
  int failures = 0;   ///< in jobs of this run
  int in_ledger = 0;  ///< in jobs of any run: Roster::Node::past_failures
  int doubts = 0;     ///< in jobs of this run

  bool clean() const { return failures == 0 && doubts == 0; }
  auto operator<=>(const NodeScore&) const = default;
};

/// All that is on record of one node.
class NodePast {
 public:
  /// A second failure of the same attempt, and the same doubt, are no news.
  void add(const NodeMark& mark);
  /// Of its newest check: what earlier checks found does not count any more.
  void checked(const NodeMark& found);
  void checked_ok();

  /// At `now`, Unix seconds. `in_ledger` is filled in by who knows it.
  NodeScore score(double now) const;
  /// What has not faded, in words: "lost 2 times, slow"; "": nothing.
  std::string in_words(double now) const;
  double failure_weight(double now) const;  ///< as NodeHistory::weight

 private:
  std::vector<NodeMark> marks_;
};

using NodePasts = std::map<std::string, NodePast>;  ///< by the node's name

}  // namespace holdfast::launcher
