#pragma once
// Every event of the event log: a struct with one list of its fields. Writing, reading and the tables in
// docs/run-directory.md follow the list; RunState folds events by one function for each.
//
// A new event is a struct here and its name in `Event`. Then what folds it (run_state.cpp) does not compile
// without it.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "launcher/record/field.hpp"

namespace holdfast::launcher {

/// A chapter of docs/run-directory.md.
enum class Chapter { leaders, attempts, nodes, orders };

struct About {
  const char* kind;  ///< its name in JSON
  Chapter chapter;
  const char* meaning;
};

/// Where an event stands in the log. It goes with each of them.
struct Envelope {
  int schema_version = 1, term = 0, seq = 0;
  double unix = 0;
  std::string time;

  static constexpr auto fields =
      std::tuple(required("schema_version", &Envelope::schema_version, "1"),
                 required("term", &Envelope::term, "of the leader that wrote it"),
                 required("seq", &Envelope::seq, "from 1, within the term"),
                 required("unix", &Envelope::unix, "when it was decided, by the leader's clock", "Unix s"),
                 expected("time", &Envelope::time, "the same moment, as UTC text"));
};

namespace events {

// --- parts of events ---

/// The last event that a leader has read before it leads; both 0: none.
struct LastRead {
  int term = 0, seq = 0;

  static constexpr auto fields =
      std::tuple(required("term", &LastRead::term), required("seq", &LastRead::seq));
  bool operator==(const LastRead&) const = default;
};

/// How long a phase takes, in seconds (supervise/pace.hpp).
struct KnownPace {
  double longest = 0, first = 0;

  static constexpr auto fields =
      std::tuple(required("longest_s", &KnownPace::longest, "the longest of the last rounds", "s"),
                 required("first_s", &KnownPace::first, "the longest of any attempt's first rounds", "s"));
  bool operator==(const KnownPace&) const = default;
};

// --- leaders ---

struct LeaderElected {
  static constexpr About about{"leader_elected", Chapter::leaders,
                               "a leader begins; the first line of its file"};
  std::string node, job;
  int pid = 0;
  std::optional<LastRead> after;
  int nodes = 0;

  static constexpr auto fields = std::tuple(
      required("node", &LeaderElected::node, "where it runs"),
      required("job", &LeaderElected::job,
               "the allocation, as in `result.json`. One that differs from that of the event before begins a "
               "new job: nodes, drains and the outcome of the last one are forgotten"),
      expected("pid", &LeaderElected::pid, "of its agent"),
      if_set("after", &LeaderElected::after,
             "the last event that it has read: `term` and `seq` (integers), both 0 for none"),
      expected("nodes", &LeaderElected::nodes, "in the allocation, spares among them", "nodes"));
};

/// A setting that is not what it was in the job before, in TOML spelling.
struct SettingValues {
  std::string before, now;

  static constexpr auto fields = std::tuple(required("before", &SettingValues::before, "in TOML spelling"),
                                            required("now", &SettingValues::now, "in TOML spelling"));
  bool operator==(const SettingValues&) const = default;
};

struct SettingsChanged {
  static constexpr About about{"settings_changed", Chapter::leaders,
                               "the job runs with other settings than the job before it"};
  std::map<std::string, SettingValues> settings;

  static constexpr auto fields = std::tuple(
      required("settings", &SettingsChanged::settings,
               "by `table.key`: `before` and `now`, text in TOML spelling. `config/` has the files"));
};

struct SharedReturned {
  static constexpr About about{
      "shared_returned", Chapter::leaders,
      "the run directory did not take what the leader wrote for 5 s or more, and now has"};
  double gone_s = 0;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("gone_s", &SharedReturned::gone_s, "that the write waited", "s"),
                 required("evidence", &SharedReturned::evidence, "the last error"));
};

// --- attempts ---

struct AttemptPlanned {
  static constexpr About about{"attempt_planned", Chapter::attempts, "the next attempt, and why"};
  int attempt = 0;
  std::vector<std::string> placement;
  std::string answer, because;
  double wait_s = 0;

  static constexpr auto fields = std::tuple(
      required("attempt", &AttemptPlanned::attempt, "its number"),
      required("placement", &AttemptPlanned::placement, "node of each slot"),
      expected("answer", &AttemptPlanned::answer,
               "`restart`, `substitute`, `shrink` or `requeue` (an attempt that only saves)"),
      expected("because", &AttemptPlanned::because,
               "the row of the table of decisions (`launcher/supervise/policy.cpp`)"),
      if_set(
          "wait_s", &AttemptPlanned::wait_s,
          "that the start waits, after attempts that the infrastructure ended or that failed at their start",
          "s"));
};

struct AttemptStarted {
  static constexpr About about{"attempt_started", Chapter::attempts,
                               "all old processes are gone, the ranks are started"};
  int attempt = 0;

  static constexpr auto fields = std::tuple(required("attempt", &AttemptStarted::attempt));
};

struct OldRanksRemain {
  static constexpr About about{
      "old_ranks_remain", Chapter::attempts,
      "killed ranks of older attempts have not ended on half of the nodes or more: no "
      "node is blamed, and the start waits"};
  int attempt = 0;
  std::vector<std::string> nodes;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("attempt", &OldRanksRemain::attempt, "that is to start"),
                 required("nodes", &OldRanksRemain::nodes, "where they are"),
                 required("evidence", &OldRanksRemain::evidence, "what they wait for"));
};

struct StateChosen {
  static constexpr About about{
      "state_chosen", Chapter::attempts,
      "nodes had sealed states of the program in their memory, and this is the one that "
      "the attempt starts from"};
  int attempt = 0;
  std::int64_t step = 0;
  int of_attempt = 0;
  std::string level;
  int moved = 0;
  std::string note;

  static constexpr auto fields = std::tuple(
      required("attempt", &StateChosen::attempt),
      required("step", &StateChosen::step, "of the state; −1: none of them"),
      required("of_attempt", &StateChosen::of_attempt, "that sealed it"),
      required("level", &StateChosen::level,
               "`local`; `partner`, where ranks get theirs from another node; `shared`: none of them"),
      required("moved", &StateChosen::moved, "ranks whose state was fetched from a copy"),
      expected("note", &StateChosen::note, "why not a newer one, or none"));
};

struct PlacementVerified {
  static constexpr About about{"placement_verified", Chapter::attempts,
                               "all ranks are up, each on its planned node"};
  int attempt = 0, ranks = 0;

  static constexpr auto fields = std::tuple(required("attempt", &PlacementVerified::attempt),
                                            required("ranks", &PlacementVerified::ranks, "the world"));
};

struct AttemptAdopted {
  static constexpr About about{"attempt_adopted", Chapter::attempts,
                               "a new leader found the attempt whole, and goes on with it"};
  int attempt = 0;
  std::int64_t step = 0;

  static constexpr auto fields =
      std::tuple(required("attempt", &AttemptAdopted::attempt), required("step", &AttemptAdopted::step));
};

struct Restored {
  static constexpr About about{"restored", Chapter::attempts, "the state is loaded"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string level, digest, note;

  static constexpr auto fields =
      std::tuple(required("attempt", &Restored::attempt),
                 required("step", &Restored::step, "of the restored state; 0: a fresh start"),
                 required("level", &Restored::level,
                          "`local`, `peer`, `partner`, `shared`, `fresh`: the slowest that was needed"),
                 required("digest", &Restored::digest, "state digest, 16 hex digits"),
                 expected("note", &Restored::note, "why an older checkpoint was taken"));
};

struct FirstStep {
  static constexpr About about{"first_step", Chapter::attempts, "the attempt has done a new step"};
  int attempt = 0;
  std::int64_t step = 0;

  static constexpr auto fields =
      std::tuple(required("attempt", &FirstStep::attempt), required("step", &FirstStep::step, "rank 0's"));
};

struct RankExited {
  static constexpr About about{
      "rank_exited", Chapter::attempts,
      "a rank ended with an error. At most the first of an attempt, before the diagnosis"};
  int attempt = 0, rank = 0;
  std::string node;
  int status = 0;

  static constexpr auto fields =
      std::tuple(required("attempt", &RankExited::attempt), required("rank", &RankExited::rank),
                 required("node", &RankExited::node),
                 required("status", &RankExited::status, "exit code, or 128 + signal; −1: it vanished"));
};

struct AttemptEnded {
  static constexpr About about{"attempt_ended", Chapter::attempts,
                               "with the diagnosis. Of an attempt that finished, or that the end of the run "
                               "cut short, only `attempt`, `cause`, `step`, `reports` and `ran_s` mean "
                               "something"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string cause = {}, node = {};
  int rank = -1;
  int status = 0;
  std::string kind = "planned";
  bool blamed = false;
  std::string blame = {};
  double detected_s = 0, decided_s = 0;
  std::vector<std::string> evidence = {};
  std::string advice = {}, gpu = {};
  int xid = 0, xid_rank = -1;
  bool reports = true;
  double ran_s = 0;
  bool progress_assumed = false;
  double unjudged_s = 0;
  std::string admin = {};

  static constexpr auto fields = std::tuple(
      required("attempt", &AttemptEnded::attempt), required("step", &AttemptEnded::step),
      required("cause", &AttemptEnded::cause, "[causes](#causes)"),
      expected("node", &AttemptEnded::node, "that is to blame"),
      expected("rank", &AttemptEnded::rank, "that failed first; −1: none"),
      if_set("status", &AttemptEnded::status, "of that rank: exit code, or 128 + signal; −1: it vanished"),
      expected("kind", &AttemptEnded::kind,
               "`program`, `node`, `infrastructure` or `planned`: which "
               "[budgets](manual/failures.md#budgets) it spends"),
      expected("blamed", &AttemptEnded::blamed, "counts against `node`, for `max_node_failures`"),
      expected("blame", &AttemptEnded::blame,
               "where the cause lies: `node`, `program`, `shared` or `nothing`; `claim`: in the node, by "
               "the program's word alone"),
      expected("detected_s", &AttemptEnded::detected_s, "as in `result.json`", "s"),
      expected("decided_s", &AttemptEnded::decided_s, "as in `result.json`", "s"),
      expected("evidence", &AttemptEnded::evidence, "first things first"),
      if_set("advice", &AttemptEnded::advice, "for you or your administrator"),
      if_set("gpu", &AttemptEnded::gpu, "UUID or PCI address, where the evidence names one"),
      if_set("xid", &AttemptEnded::xid, "NVIDIA's number, where an Xid was the cause"),
      if_set("xid_rank", &AttemptEnded::xid_rank,
             "the rank that showed the Xid; −1: it is not known which one did"),
      if_set("reports", &AttemptEnded::reports,
             "the program says how far it is; if not, `step` means nothing"),
      if_set("ran_s", &AttemptEnded::ran_s,
             "where it does not: from the time when all ranks were up, without the silence of a hang", "s"),
      if_set("progress_assumed", &AttemptEnded::progress_assumed,
             "where it does not: it ran for `supervise.assumed_progress_s`"),
      if_set("unjudged_s", &AttemptEnded::unjudged_s,
             "from now on no silence is taken for a hang before an attempt has shown signs of life for so "
             "long",
             "s"),
      if_set("admin", &AttemptEnded::admin,
             "a command line for the administrator, where hardware is to blame"));
};

struct FinalState {
  static constexpr About about{"final_state", Chapter::attempts, "rank 0 has done the last step"};
  std::int64_t step = 0, tokens = 0;
  double loss = 0;
  std::string state_digest;

  static constexpr auto fields =
      std::tuple(required("step", &FinalState::step),
                 required("tokens", &FinalState::tokens, "consumed by the run", "tokens"),
                 required("loss", &FinalState::loss, "null: not finite", "nats per token"),
                 required("state_digest", &FinalState::state_digest, "16 hex digits"));
};

// --- nodes ---

struct NodeLost {
  static constexpr About about{
      "node_lost", Chapter::nodes,
      "a node is silent, or could not end old ranks; it is not used again before it answers"};
  std::string node;
  std::optional<int> slot;
  double silent_s = 0;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("node", &NodeLost::node), required("slot", &NodeLost::slot, "null: it had none"),
                 required("silent_s", &NodeLost::silent_s, "since it was last heard", "s"),
                 required("evidence", &NodeLost::evidence));
};

struct NodeReturned {
  static constexpr About about{"node_returned", Chapter::nodes,
                               "a lost node answers again, and is a spare and a suspect"};
  std::string node, evidence;

  static constexpr auto fields =
      std::tuple(required("node", &NodeReturned::node), required("evidence", &NodeReturned::evidence));
};

struct NodeSuspected {
  static constexpr About about{"node_suspected", Chapter::nodes,
                               "the node is taken only when there is no other"};
  std::string node, evidence;

  static constexpr auto fields =
      std::tuple(required("node", &NodeSuspected::node), required("evidence", &NodeSuspected::evidence));
};

struct EvictionOrdered {
  static constexpr About about{"eviction_ordered", Chapter::nodes,
                               "the node leaves once the ranks have saved"};
  std::string node, reason;
  int attempt = 0;
  std::string sign = {};

  static constexpr auto fields = std::tuple(
      required("node", &EvictionOrdered::node), required("reason", &EvictionOrdered::reason),
      required("attempt", &EvictionOrdered::attempt),
      if_set(
          "sign", &EvictionOrdered::sign,
          "what evicts it, for `max_evictions`: `Xid` with its number, or the name of a sign. Not set by an "
          "order"));
};

struct NodeEvicted {
  static constexpr About about{"node_evicted", Chapter::nodes, "the node is not used again in this job"};
  std::string node, evidence;
  std::string sign = {};

  static constexpr auto fields =
      std::tuple(required("node", &NodeEvicted::node), required("evidence", &NodeEvicted::evidence),
                 if_set("sign", &NodeEvicted::sign, "as in `eviction_ordered`, where no save came first"));
};

struct SparePromoted {
  static constexpr About about{"spare_promoted", Chapter::nodes, "a spare takes a slot"};
  int slot = 0;
  std::optional<std::string> from;
  std::string to, scalable_unit;

  static constexpr auto fields =
      std::tuple(required("slot", &SparePromoted::slot),
                 required("from", &SparePromoted::from, "node that had the slot; null: none"),
                 required("to", &SparePromoted::to, "node that has it now"),
                 expected("scalable_unit", &SparePromoted::scalable_unit, "of `to`"));
};

struct RunShrunk {
  static constexpr About about{"run_shrunk", Chapter::nodes, "the next attempt has fewer nodes"};
  int nodes = 0, planned = 0;
  double slowdown = 1;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("nodes", &RunShrunk::nodes, "active nodes from now on", "nodes"),
                 required("planned", &RunShrunk::planned, "active nodes as the job planned them", "nodes"),
                 required("slowdown", &RunShrunk::slowdown,
                          "how many times as long a step takes as with all nodes", "factor"),
                 required("evidence", &RunShrunk::evidence, "the decision"));
};

struct RunGrown {
  static constexpr About about{"run_grown", Chapter::nodes, "the next attempt has more nodes"};
  int nodes = 0, planned = 0;
  double slowdown = 1;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("nodes", &RunGrown::nodes, "active nodes from now on", "nodes"),
                 required("planned", &RunGrown::planned, "active nodes as the job planned them", "nodes"),
                 required("slowdown", &RunGrown::slowdown,
                          "how many times as long a step takes as with all nodes", "factor"),
                 required("evidence", &RunGrown::evidence, "the decision"));
};

struct SpareHealth {
  static constexpr About about{"spare_health", Chapter::nodes, "what checks say of a node is news"};
  std::string node;
  bool spare = false;
  std::string fitness, numerics, evidence;
  std::map<std::string, std::string> checks = {};

  static constexpr auto fields = std::tuple(
      required("node", &SpareHealth::node), required("spare", &SpareHealth::spare, "it has no slot"),
      required("fitness", &SpareHealth::fitness, "`ok`, `warning`, `critical`, `unknown`"),
      expected("numerics", &SpareHealth::numerics, "hash of the numerics probe; empty: it was not run"),
      expected("evidence", &SpareHealth::evidence, "the worst findings"),
      if_set("checks", &SpareHealth::checks, "by check: `warning` or `critical`"));
};

struct FindingShared {
  static constexpr About about{"finding_shared", Chapter::nodes,
                               "a check finds the same of most nodes: it counts for none of them"};
  std::string check, fitness;
  int nodes = 0, of = 0;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("check", &FindingShared::check,
                          "a [check](manual/failures.md#doctor-is-a-node-fit) of `doctor`"),
                 required("fitness", &FindingShared::fitness, "`warning` or `critical`"),
                 required("nodes", &FindingShared::nodes, "with this finding", "nodes"),
                 required("of", &FindingShared::of, "that are not lost", "nodes"),
                 required("evidence", &FindingShared::evidence, "what was found of the first of them"));
};

struct Straggler {
  static constexpr About about{"straggler", Chapter::nodes,
                               "a node computes or communicates much longer than the others"};
  int attempt = 0;
  std::string what = "compute";
  int rank = -1;
  std::string node;
  double ratio = 0;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("attempt", &Straggler::attempt),
                 expected("what", &Straggler::what,
                          "`compute`: a rank computes late; `network`: messages to and from the node are "
                          "awaited for long; `link`: one of its links has lost a part of its rate"),
                 required("rank", &Straggler::rank, "the one that computes late, else -1"),
                 required("node", &Straggler::node),
                 required("ratio", &Straggler::ratio,
                          "its time over the median; of a link, its rate over what is left of it", "factor"),
                 required("evidence", &Straggler::evidence));
};

struct PartnerCopies {
  static constexpr About about{
      "partner_copies", Chapter::nodes,
      "news of whether a node's [snapshot buffers](protocol.md#snapshot-buffers) are copied to its partner"};
  int attempt = 0;
  std::string node;
  bool on = false;
  std::string evidence;

  static constexpr auto fields =
      std::tuple(required("attempt", &PartnerCopies::attempt), required("node", &PartnerCopies::node),
                 required("on", &PartnerCopies::on, "they are"),
                 expected("evidence", &PartnerCopies::evidence, "why not"));
};

struct PaceKnown {
  static constexpr About about{"pace", Chapter::nodes, "how long phases take, for the next leader"};
  int attempt = 0;
  std::map<std::string, KnownPace> phases;

  static constexpr auto fields =
      std::tuple(required("attempt", &PaceKnown::attempt),
                 required("phases", &PaceKnown::phases,
                          "by the phase's name, and `step` for whole steps: `longest_s` (the longest of the "
                          "last rounds) and `first_s` (the longest of any attempt's first rounds), numbers",
                          "s"));
};

struct SilentCorruption {
  static constexpr About about{"silent_corruption", Chapter::nodes,
                               "a comparison of `[verify]` came out unequal"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string check;
  std::int64_t right_until = 0;
  std::vector<int> accused;
  std::vector<std::string> nodes;
  std::int64_t trusted_step = 0;
  std::string evidence;

  static constexpr auto fields = std::tuple(
      required("attempt", &SilentCorruption::attempt), required("step", &SilentCorruption::step),
      required("check", &SilentCorruption::check, "`replicas` or `micro_batch`"),
      required("right_until", &SilentCorruption::right_until, "the newest step that this check found right"),
      required("accused", &SilentCorruption::accused, "ranks that differ"),
      required("nodes", &SilentCorruption::nodes,
               "their nodes. One: it is evicted. Several: they are suspects"),
      required("trusted_step", &SilentCorruption::trusted_step,
               "newest durable checkpoint that is not in doubt: the next attempt starts there. 0: none, it "
               "begins anew"),
      required("evidence", &SilentCorruption::evidence));
};

// --- checkpoints and orders ---

struct CheckpointDurable {
  static constexpr About about{"checkpoint_durable", Chapter::orders, "a checkpoint is committed"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string note;
  double stalled_s = 0;

  static constexpr auto fields =
      std::tuple(required("attempt", &CheckpointDurable::attempt),
                 required("step", &CheckpointDurable::step, "of the checkpoint"),
                 expected("note", &CheckpointDurable::note, "what was unusual"),
                 if_set("stalled_s", &CheckpointDurable::stalled_s,
                        "that training waited for saves and snapshots since the checkpoint before", "s"));
};

struct CheckpointDropped {
  static constexpr About about{"checkpoint_dropped", Chapter::orders, "a checkpoint is not committed"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string note;
  double stalled_s = 0;

  static constexpr auto fields =
      std::tuple(required("attempt", &CheckpointDropped::attempt),
                 required("step", &CheckpointDropped::step, "of the checkpoint"),
                 expected("note", &CheckpointDropped::note, "why"),
                 if_set("stalled_s", &CheckpointDropped::stalled_s,
                        "that training waited for saves and snapshots since the checkpoint before", "s"));
};

struct CheckpointDamaged {
  static constexpr About about{"checkpoint_damaged", Chapter::orders,
                               "an attempt was to begin from it, and its files are not what was committed"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string note;

  static constexpr auto fields = std::tuple(required("attempt", &CheckpointDamaged::attempt),
                                            required("step", &CheckpointDamaged::step, "of the checkpoint"),
                                            expected("note", &CheckpointDamaged::note, "what does not hold"));
};

struct CheckpointsRemoved {
  static constexpr About about{"checkpoints_removed", Chapter::orders, "retention has removed some"};
  int attempt = 0;
  std::vector<std::int64_t> steps;

  static constexpr auto fields = std::tuple(required("attempt", &CheckpointsRemoved::attempt),
                                            required("steps", &CheckpointsRemoved::steps));
};

struct Paused {
  static constexpr About about{"paused", Chapter::orders, "`ctl pause`"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string reason;

  static constexpr auto fields =
      std::tuple(required("attempt", &Paused::attempt), required("step", &Paused::step),
                 required("reason", &Paused::reason, "who"));
};

struct Resumed {
  static constexpr About about{"resumed", Chapter::orders, "`ctl resume`"};
  int attempt = 0;
  std::int64_t step = 0;
  std::string reason;

  static constexpr auto fields =
      std::tuple(required("attempt", &Resumed::attempt), required("step", &Resumed::step),
                 required("reason", &Resumed::reason, "who"));
};

struct Drain {
  static constexpr About about{"drain", Chapter::orders, "the ranks are to save"};
  int attempt = 0;
  std::int64_t step = 0;
  bool stop = false, for_good = false;
  std::string reason;

  static constexpr auto fields = std::tuple(
      required("attempt", &Drain::attempt),
      required("step", &Drain::step,
               "without `stop`, the drain is done when a checkpoint of `step` or later is durable"),
      required("stop", &Drain::stop, "and to end"),
      expected("for_good", &Drain::for_good, "`ctl stop`: the job is not queued again"),
      required("reason", &Drain::reason));
};

struct OrderHeard {
  static constexpr About about{"order_heard", Chapter::orders,
                               "the program of a rank has taken an order: the first of its ranks"};
  int attempt = 0, rank = -1;
  std::string order;

  static constexpr auto fields =
      std::tuple(required("attempt", &OrderHeard::attempt), required("rank", &OrderHeard::rank),
                 required("order", &OrderHeard::order, "`save`, `stop` or `pause`"));
};

struct RunFinished {
  static constexpr About about{"run_finished", Chapter::orders, "the run outcome"};
  int exit_code = 1;
  std::string status, why;
  std::vector<std::string> exclude;

  static constexpr auto fields =
      std::tuple(required("exit_code", &RunFinished::exit_code, "as in `result.json`"),
                 required("status", &RunFinished::status, "as in `result.json`"),
                 required("why", &RunFinished::why, "as in `result.json`"),
                 if_set("exclude", &RunFinished::exclude,
                        "nodes that the next job should not get; only with exit code 75"));
};

}  // namespace events

/// An event that this version does not know. It is kept as it was read.
struct UnknownEvent {
  nlohmann::json json;
};

using Event =
    std::variant<events::LeaderElected, events::SettingsChanged, events::SharedReturned,
                 events::AttemptPlanned, events::OldRanksRemain, events::StateChosen, events::AttemptStarted,
                 events::PlacementVerified, events::AttemptAdopted, events::Restored, events::FirstStep,
                 events::RankExited, events::AttemptEnded, events::FinalState, events::NodeLost,
                 events::NodeReturned, events::NodeSuspected, events::EvictionOrdered, events::NodeEvicted,
                 events::SparePromoted, events::RunShrunk, events::RunGrown, events::SpareHealth,
                 events::FindingShared, events::Straggler, events::PartnerCopies, events::PaceKnown,
                 events::SilentCorruption, events::CheckpointDurable, events::CheckpointDropped,
                 events::CheckpointDamaged, events::CheckpointsRemoved, events::Paused, events::Resumed,
                 events::Drain, events::OrderHeard, events::RunFinished, UnknownEvent>;

/// A line of the event log.
struct LogEntry {
  Envelope envelope;
  Event event;
};

/// The event's name in JSON.
std::string kind_of(const Event& event);

/// A number that is not finite becomes null, for which JSON has no other spelling.
nlohmann::json to_json(const Event& event);
nlohmann::json to_json(const LogEntry& entry);

/// An event of an unknown name is kept, and so is an object without a name. Throws Error that names the
/// event, the field and what was found there, when a required field is missing or any field has another type.
/// A list of texts may also be one text, as older versions wrote `evidence`. Fields without a name here are
/// ignored.
Event event_from_json(const nlohmann::json& object);
/// The same with its envelope. Of an unknown event, what the envelope lacks has its default.
LogEntry entry_from_json(const nlohmann::json& object);
/// One line of JSON, without its end. A byte that is not UTF-8 is replaced.
std::string line_of(const Event& event);
std::string line_of(const LogEntry& entry);

}  // namespace holdfast::launcher
