#pragma once
// Decides what to do when an attempt has ended: a table (policy.cpp) over plain facts, whose first row that
// holds gives the answer; and the placements that follow from the answers.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/diagnose/diagnosis.hpp"
#include "launcher/plan/shrink.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"
#include "launcher/supervise/spare_choice.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct Failure {
  enum class Kind {
    node_lost,       ///< no heartbeat, or it could not end its old ranks
    rank_exited,     ///< a rank ended with a code or a signal, on a node that answers
    rank_hung,       ///< alive, no progress
    start_failed,    ///< not all ranks connected in time
    misplaced,       ///< a rank runs on another node than planned
    leader_changed,  ///< the new leader found that ranks of the attempt are missing
    evicted,         ///< a node leaves on order; the ranks have saved
    corrupted,       ///< a comparison that must be equal was not
  };
  Kind kind = Kind::rank_exited;
  int node = -1;  ///< culprit; -1: none in particular
  int rank = -1;
  int status = 0;          ///< rank_exited: exit code or 128 + signal
  bool our_codes = false;  ///< rank_exited: RankEnd::our_codes
  bool later = false;      ///< ranks have waited in vain for a checkpoint that cannot be read
  std::string evidence;    ///< in words
  double silent_s = 0;     ///< node_lost: since its last sign of life
  /// The diagnosis, where there is one.
  Blame blame = Blame::nothing;
  bool ends_node = false, unproven = false, same_again = false;
  std::vector<int> ended_nodes;         ///< all nodes that must not be used again ...
  std::map<int, std::string> ended_by;  ///< ... and by what: "Xid 48", or the name of a sign
  bool evictions_spent =
      false;                   ///< the culprit would leave, but its sign has evicted too many (max_evictions)
  int xid = 0, xid_rank = -1;  ///< the Xid, if it was one, and the rank that showed it, where that is known
  std::string cause;           ///< short; "": name_of(kind)
  std::string advice;
  std::string gpu;                ///< UUID or PCI address, where the evidence names one
  std::vector<std::string> seen;  ///< further evidence
  bool lost_peers = false;        ///< rank_exited: ranks have lost each other, and no other cause is known
  control::Phase phase = control::Phase::forward;  ///< rank_hung: the culprit's
  double unjudged_s =
      0;  ///< rank_hung: from now on no silence is taken for a hang (AttemptEnded::unjudged_s)
};
const char* name_of(Failure::Kind kind);
/// Where the cause lies. A node that falls silent is to blame itself, without diagnosis.
Blame blame_of(const Failure& failure);
/// Does it count against the node?
bool blames_node(const Failure& failure);

enum class PolicyAction {
  restart,     ///< the same nodes (a run that has shrunk grows again if it can)
  substitute,  ///< a spare for each slot without a node, or for the suspect
  shrink,      ///< fewer replicas
  requeue,     ///< save what can be saved, then the next job
  stop
};
const char* name_of(PolicyAction answer);

struct BudgetRow;  // budget_table.hpp

/// All facts that rows of the table ask for.
struct PolicyFacts {
  int final_code = 0;                  ///< a rank ended with an exit code that would recur; 0: no
  bool same_again = false;             ///< diagnosis: another try on any node fails the same way
  bool later = false;                  ///< ranks have waited in vain for a checkpoint
  const BudgetRow* used_up = nullptr;  ///< the budget of the cause that is used up
  bool short_of_nodes = false;         ///< a slot has lost its node
  bool spares_suffice = false;         ///< a fit spare for each such slot
  bool suspect = false;                ///< the culprit answers, but failed too often or is to blame
  bool better_node = false;            ///< a fit spare that is no suspect could take the suspect's slot
  bool fitter_nodes = false;  ///< before the first start: a fit spare could take an unfit node's slot
  bool can_shrink = false;    ///< whole replicas are left, on no fewer than min_nodes
  Cheaper cheaper = Cheaper::requeue;
  config::WhenShort when_short = config::WhenShort::automatic;
};
struct PolicyRow {
  const char* when;  ///< in words, for the event log
  bool (*holds)(const PolicyFacts&);
  PolicyAction answer;
  int exit_code;  ///< of stop and requeue; 0: PolicyFacts::final_code, or that of the budget
};
std::span<const PolicyRow> policy_table();
/// The first row that holds; the last one always does.
const PolicyRow& row_for(const PolicyFacts& facts);

/// What a decision depends on beside the failure.
struct Situation {
  const Roster& roster;
  const config::Supervise& limits;
  const Shrinking& shrinking;
  const RunState& state;  ///< includes the ended attempt and the lost node
  const std::vector<int>& placement;
  const std::vector<NodeView>& views;
  double hours_left = -1;  ///< of training at full size; negative: not known
  bool first = false;      ///< ranks have not been started in this job
};

struct Decision {
  PolicyAction answer = PolicyAction::restart;
  std::string because;  ///< the row, in words
  /// stop, and requeue where nothing can or need be saved first: the run outcome ...
  std::optional<RunOutcome> stop;
  /// ... else the placement to go on with (slot -> node). With requeue: of the nodes that still hold all of
  /// the state, to save it.
  std::vector<int> placement;
  std::string short_of;               ///< of that requeue: why no spare takes the slot, in words
  std::vector<Promotion> promotions;  ///< slots that have another node now
};

/// Hours of training at full size that are left, from the step times of the last attempt, on `nodes`, which
/// has come to `step`; negative: not known.
double hours_left(const RunState& state, const Shrinking& shrinking, int nodes, std::int64_t step,
                  double unix_now);

Decision decide(const Situation& situation, const Failure& failure, bool worth_saving);

}  // namespace holdfast::launcher
