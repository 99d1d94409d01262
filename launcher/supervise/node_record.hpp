#pragma once
// What counts against a node, for how long, and what follows. Pure.
//
// - An attempt ended by it (attempt_ended names it, and `blamed`): a failure for the job
//   (RunState::failures), for the run and for the ledger. After supervise.max_node_failures of them in a job
//   it is a suspect, which gets a slot last (budget_table.hpp, attempt_end.hpp).
// - It was lost or evicted, or it computed wrongly, or its newest check was critical: a failure for the run.
//   The loss of a spare is one for the ledger, too; that of an active node is, as the end of its attempt.
// - Its newest check warned, a rank on it was slow, or it may have computed wrongly: a doubt, for the run.
//
// At most one failure counts for each attempt: one fault shows in several ways. Failures and doubts fade with
// time, in the record of the run as in the ledger. The time is that of the job's first event: all leaders of
// a job compute the same. NodeScore decides who gets a slot (spare_choice.hpp), unwanted_nodes() which nodes
// the next job does without.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/record/events.hpp"
#include "launcher/supervise/ledger.hpp"

namespace holdfast::launcher {

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
  /// From its newest check: what earlier checks found does not count any more.
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

/// What an event says against a node. Checks say nothing here: of these only the newest counts.
struct NodeFault {
  std::string node;
  NodeMark::What what = NodeMark::What::lost;
};
std::vector<NodeFault> faults_in(const Event& event);
/// For the ledger: an attempt that ended by a fault of a node (LedgerEntry::hardware) or of the program
/// there, or a spare that was lost. Nothing for any other event. `job`: job id and restart count.
std::optional<LedgerEntry> ledger_entry(const LogEntry& event, const std::string& job);

struct RunState;
/// Nodes that the next job should not get: those that were lost or evicted.
std::vector<std::string> to_exclude(const RunState& state);
/// By names: those to exclude, as the outcome says, and others that fail again and again, by the record of
/// the run or by `ledger`, which knows the nodes of this job. Only the worst eight of these: a fault of the
/// network must not empty the cluster.
struct UnwantedNodes {
  std::vector<std::string> failed, doubtful;
};
UnwantedNodes unwanted_nodes(const RunState& state, const std::map<std::string, NodeHistory>& ledger = {});

}  // namespace holdfast::launcher
