#pragma once
// Everything that is said between rank, agent and leader: one struct per message, encoded as one JSON object.
// Decoding checks every field's type and bounds; what does not fit is refused whole.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/control/rank_link.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::control {

/// Who opens a connection, and why. Always the first message.
struct Hello {
  enum class Role { rank, shim, leader, candidate, spawner, job_monitor, caller };
  Role role = Role::rank;
  std::string node;  ///< where the speaker runs
  int term = 0;      ///< leader: its term; candidate: the one it asks for; others: of their attempt
  int attempt = 0;   ///< rank, shim, spawner
  int rank = -1;     ///< rank, shim
  std::int64_t pid = 0;
};

// --- rank or shim to agent, and on to the leader (the agent fills `rank` and `attempt` from the hello)
// ---------------
struct RankStarted {
  int rank = -1, attempt = 0;
  std::int64_t pid = 0;
};
struct RankProgress {
  int rank = -1, attempt = 0;
  std::int64_t step = -1;
  Phase phase = Phase::starting;
  std::int64_t compute_us = 0;  ///< its own work of the newest step, waiting left out; 0: not said
  std::int64_t moves =
      0;  ///< phases that it has begun: seen in the same phase again, it may have left it in between
};
struct RankRestored {
  int rank = -1, attempt = 0;
  Restored from;
};
struct RankVote {
  int rank = -1, attempt = 0;
  std::int64_t step = 0;
  bool ok = false;
  std::string payload;
};
struct RankFinished {
  int rank = -1, attempt = 0;
  std::optional<FinalState> state;
};
struct RankFailed {
  int rank = -1, attempt = 0, exit_code = 0;
  std::string why;
};
struct RankExited {
  int rank = -1, attempt = 0, status = 0;
};  ///< status: exit code or 128 + signal; -1: it vanished
/// Agent to leader, of every rank of its node while one of them has not moved for long: is the rank's process
/// still heard, and where does it stand in its groups (flight::stuck_ranks).
struct RankFlight {
  int rank = -1, attempt = 0;
  std::int64_t silent_ms = 0;  ///< since the last word of the process, which speaks also when it waits
  std::vector<flight::FlightGroup> groups;  ///< empty without a flight record
};
/// A comparison that must be equal was not: silent data corruption. Logical rank 0 speaks for all.
struct RankDoubt {
  int rank = -1, attempt = 0;
  std::int64_t step =
      0;  ///< the newest that the same check found right: RankEnv::trusted_step of what follows
  std::vector<int>
      accused;        ///< ranks that differ from the rest; more than one node: it cannot be told who is wrong
  std::string check;  ///< "replicas" or "micro_batch"
  std::string why;
};
/// Agent to rank: the leader or the agent has your finished/failed/exited.
struct Taken {};
/// What became of a checkpoint; leader to agent to rank.
struct CommitOutcome {
  int attempt = 0;
  std::int64_t step = 0;
  bool durable = false;
  std::string why;
};

/// Leader to agent to the ranks: hold after the current step, or go on.
struct Pause {
  bool on = false;
};
/// `holdfast drill` to an agent, for itself or on to a rank: break this now (launcher/drill/faults.hpp).
/// Refused unless drill.allowed.
struct Inject {
  std::string fault;
  int rank = -1;  ///< -1: the node itself
  double seconds = 0;
  std::uint64_t seed = 0;
};

// --- leader and agent ---
struct RankPlace {
  int rank = -1, local_rank = 0;
};
/// Agent to leader, first answer and every heartbeat.
struct Beat {
  std::string node;
  int attempt = 0;                  ///< highest attempt this agent has heard of
  bool mpirun = false;              ///< it hosts the live mpirun of that attempt
  std::vector<RankProgress> ranks;  ///< live ranks of that attempt on this node
};
struct LeaderBeat {
  int term = 0;
};
/// Leader to agent: end everything of lower attempts, then answer Cleared.
struct Clear {
  int term = 0, attempt = 0;
};
struct Cleared {
  int attempt = 0;
};
/// Of the steps on record as durable, ranks are told so many: the newest.
inline constexpr std::size_t max_durable_steps = 64;
/// Leader to agent: start these ranks of `[rank] command` yourself.
struct StartRanks {
  int term = 0, attempt = 0, world = 0, ranks_per_node = 0, master_port = 0;
  std::string master;
  std::vector<RankPlace> ranks;
  std::int64_t trusted_step = -1;                ///< newest state that may be restored (RankEnv)
  std::vector<std::int64_t> durable_steps = {};  ///< checkpoints that have to be there (RankEnv)
};
/// Leader to agent: run mpirun here, for ranks on these nodes (slot order, ranks_per_node each).
struct StartMpirun {
  int term = 0, attempt = 0;
  std::vector<std::string> slots;
  std::int64_t trusted_step = -1;  ///< as in StartRanks
  std::vector<std::int64_t> durable_steps = {};
};
struct MpirunExited {
  int attempt = 0, status = 0;
};
/// Leader to agent: the run is over; end everything and leave with this code.
struct Finish {
  int exit_code = 0;
};

/// One thing that a node saw and that may explain a failure.
struct Sign {
  std::string
      kind;       ///< a row of launcher/diagnose/signs.hpp: "xid", "oom_kill", "no_space", "link_down", ...
  int rank = -1;  ///< -1: of the node
  std::int64_t code = 0;    ///< Xid, signal, exit code, errno: by kind
  std::int64_t age_ms = 0;  ///< when this was sent, it was so long ago (clocks of nodes differ)
  std::string text;         ///< the evidence: a kernel line, a counter, a path
};
/// Agent to leader, when something was seen; always before the RankExited that it may explain.
struct NodeSigns {
  std::vector<Sign> signs;
};
/// Agent to leader: is the node fit to train? Of a spare while it waits, of any node when asked (CheckNode).
struct NodeHealth {
  enum class Fitness { ok, warning, critical, unknown };
  Fitness fitness = Fitness::unknown;
  std::string why;       ///< the worst findings
  std::string numerics;  ///< hash of the numerics probe; "": not run
};
inline constexpr std::array fitness_names = {"ok", "warning", "critical", "unknown"};  // in the enum's order
const char* name_of(NodeHealth::Fitness fitness);
std::optional<NodeHealth::Fitness> fitness_called(std::string_view name);
struct CheckNode {};  ///< leader to agent: answer NodeHealth
/// Leader to agent: what is this rank doing? Answered by Stacks, within seconds.
struct DumpStacks {
  int attempt = 0, rank = -1;
};
struct Stacks {
  int attempt = 0, rank = -1;
  std::string text;
};
/// `holdfast ctl` to any agent, on to the leader; answered by OrderTaken with the same id.
struct Order {
  enum class Verb { save, stop, pause, resume, evict, spares };
  std::string id;
  Verb verb = Verb::save;
  std::string node;  ///< evict
  std::string by;    ///< who asks: user@host
};
struct OrderTaken {
  std::string id;
  bool taken = false;
  std::string says;    ///< why not, or what now happens; of spares: JSON
  bool again = false;  ///< nobody leads just now: worth another try
};

// Drain (rank_link.hpp) is a message too. Asked for: job monitor to agent, agent to leader. Ordered: leader
// to agent to the ranks of its attempt.

// --- election, mpirun's remote start ---
/// Agent to candidate.
struct Answer {
  bool grant = false;
  int term = 0;
  std::int64_t leader_age_ms = -1;
};
/// `holdfast spawn` to agent: run this command line (mpirun's, for its daemon) as a child.
struct Exec {
  std::string command;
};
struct Exited {
  int status = 0;
};

/// All there are.
using Message =
    std::variant<Hello, RankStarted, RankProgress, RankRestored, RankVote, RankFinished, RankFailed,
                 RankExited, RankFlight, RankDoubt, Taken, CommitOutcome, Pause, Inject, Beat, LeaderBeat,
                 Clear, Cleared, StartRanks, StartMpirun, MpirunExited, NodeSigns, NodeHealth, CheckNode,
                 DumpStacks, Stacks, Finish, Drain, Order, OrderTaken, Answer, Exec, Exited>;

// What each end may be sent. decode() refuses whatever else comes, and the receiver visits every alternative.
using AgentToLeader =
    std::variant<Beat, Cleared, RankStarted, RankRestored, RankVote, RankDoubt, RankFlight, RankFinished,
                 RankFailed, RankExited, MpirunExited, NodeSigns, NodeHealth, Stacks, Drain, Order>;
using LeaderToAgent = std::variant<LeaderBeat, Clear, StartRanks, StartMpirun, CommitOutcome, Drain, Pause,
                                   CheckNode, DumpStacks, OrderTaken, Finish>;
using RankToAgent =  ///< a rank or its shim
    std::variant<RankProgress, RankRestored, RankVote, RankDoubt, RankFinished, RankFailed, RankExited>;
using AgentToRank = std::variant<CommitOutcome, Drain, Pause, Inject, Taken>;
using CallerToAgent = std::variant<Order, Inject>;

std::string encode(const Message& message);
/// `Heard`: one message or a variant of those above. Nothing when `json` is none of them, or not well-formed;
/// `why` then names the field.
template <class Heard = Message>
std::optional<Heard> decode(std::string_view json, std::string& why);

/// Functions for the alternatives of a variant, for std::visit: one that is forgotten does not compile.
template <class... Function>
struct Overloaded : Function... {
  using Function::operator()...;
};

}  // namespace holdfast::control
