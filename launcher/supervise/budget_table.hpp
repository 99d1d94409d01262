#pragma once
// How often, or for how long, a run may fail: a table with a row for each kind of cause and each of its
// budgets. A failure spends the budgets of its own kind and of no other. Pure.
#include <span>
#include <string>

#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

/// What ended an attempt. The words are those of the event attempt_ended.
enum class CauseKind {
  program,         ///< the program itself, or nothing else explains it
  node,            ///< a node that is lost, or whose hardware is broken: the attempt after it does without
  infrastructure,  ///< the start of ranks, the network, the shared file system, SLURM, what a node lacks
  planned          ///< an order, a drain, or the end of the run
};
const char* name_of(CauseKind kind);
CauseKind cause_kind_of(const Failure& failure);

enum class Budget {
  count,    ///< of attempts or failures
  time,     ///< in which attempts are tried again, with a wait that grows (wait_after)
  nothing,  ///< it costs nothing
};
const char* name_of(Budget budget);

struct BudgetRow {
  CauseKind kind;
  Budget budget;
  const char* limit;      ///< of [supervise]; "": none
  const char* spent_by;   ///< in words
  const char* exhausted;  ///< what follows when it is used up, in words
  int exit_code;          ///< that the run ends with then; 0: it goes on, and the policy chooses other nodes
  /// Is it used up? `node`: the culprit's name, or "". Not set where nothing is spent.
  bool (*used_up)(const RunState& state, const config::Supervise& limits, const std::string& node);
  /// What has used it up, in words. Not set where the run goes on.
  std::string (*says)(const RunState& state, const config::Supervise& limits);
};
std::span<const BudgetRow> budget_table();
/// The first budget of this kind that is used up and ends the run; nothing: the run goes on. Those of the
/// program do not end it while may_come_back().
const BudgetRow* used_up(CauseKind kind, const RunState& state, const config::Supervise& limits);
/// max_node_failures is reached: other nodes are taken, if there are any.
bool failed_too_often(const std::string& node, const RunState& state, const config::Supervise& limits);

/// supervise.max_evictions; if that is 0, half of the spares of the job.
int max_evictions(const Roster& roster, const config::Supervise& limits);
/// max_evictions (not 0) is reached: this sign evicts no further node. What shows on one healthy node after
/// the other must not use up all spares.
bool evictions_spent(const std::string& sign, const std::string& node, const RunState& state,
                     const config::Supervise& limits);
/// Why the node is kept then, in words.
std::string why_kept(const std::string& sign, const RunState& state);

/// Seconds to wait before the next attempt, after `setbacks` of them: 1, doubled each time, at most 60.
double wait_after(int setbacks);
/// The same after RunState::false_starts: at most 15, since more of them must fit into supervise.start_s.
double wait_after_false(int starts);
/// What the program needs at its start may still come back: for supervise.start_s since it first failed so,
/// no budget of the program ends the run.
bool may_come_back(const RunState& state, const config::Supervise& limits);

}  // namespace holdfast::launcher
