#pragma once
// The messages between rank, agent and leader: one struct per message, encoded as one JSON object.
// Decoding checks every field's type and bounds; a message with a wrong field is refused as a whole.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/start_state.hpp"
#include "src/control/rank_link.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::control {

/// The first message of every connection: who opens it, and in which role.
struct Hello {
  enum class Role { rank, pmix, leader, candidate, job_monitor, caller };
  Role role = Role::rank;
  std::string node;  ///< the sender's node
  int term = 0;      ///< leader: its term; candidate: the one it asks for; others: of their attempt
  int attempt = 0;   ///< rank, pmix
  int rank = -1;     ///< rank
  std::int64_t pid = 0;
};

// --- rank to agent, which forwards it to the leader with `rank` and `attempt` from the hello ---
struct RankStarted {
  int rank = -1, attempt = 0;
  std::int64_t pid = 0;
};
struct RankProgress {
  int rank = -1, attempt = 0;
  std::int64_t step = -1;
  Phase phase = Phase::starting;
  /// Time of this rank's own work in the newest step, without waiting; 0: not reported.
  std::int64_t compute_us = 0;
  /// Number of phases begun so far. A rank that is twice seen in one phase may have left it in between.
  std::int64_t moves = 0;
};
/// Of the newest step of rank 0 of a program with the client; its agent writes them down.
struct RankMetrics {
  int rank = -1, attempt = 0;
  std::int64_t step = 0;
  double loss = 0;          ///< may be no number
  std::int64_t tokens = 0;  ///< consumed by the run
};
struct RankWaits {
  int rank = -1, attempt = 0;
  Waits waits;
};
/// All snapshot buffers of the rank hold the state of this step.
struct RankSealed {
  int rank = -1, attempt = 0;
  std::int64_t step = -1;
};
struct RankRestored {
  int rank = -1, attempt = 0;
  Restored from;
};
struct RankVote {
  int rank = -1, attempt = 0;
  std::int64_t step = 0;
  bool ok = false;
  /// On the wire it follows the JSON as it is, so that nobody's loop decodes it on its way to whoever reads
  /// it. A newline becomes a space: the same to a reader of JSON.
  std::string payload;
  std::int64_t stall_us = 0;  ///< that its training waited for saves and snapshots since its vote before
};
/// Agent to leader: votes of ranks of its node on one checkpoint, by rank.
struct NodeVotes {
  struct Vote {
    int rank = -1;
    bool ok = false;
    std::int64_t bytes = 0;     ///< of its payload
    std::int64_t stall_us = 0;  ///< as in RankVote
  };
  int attempt = 0;
  std::int64_t step = 0;
  std::vector<Vote> votes;
  std::string payloads;  ///< one behind the other; on the wire as that of RankVote

  static constexpr std::size_t max_bytes = 6 << 20;  ///< of `payloads`, and of a rank's
  bool has_room_for(std::string_view payload) const { return payloads.size() + payload.size() <= max_bytes; }
  void add(int rank, bool ok, std::string_view payload, std::int64_t stall_us = 0);
  /// The payload of each vote; views of this message.
  std::vector<std::string_view> each_payload() const;
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
};  ///< status: exit code or 128 + signal; -1: unknown, the process is gone
/// Agent to leader, for every rank of its node while one of them has made no progress for long: when the
/// rank's process was last heard, and its state in its groups (see flight::stuck_ranks).
struct RankFlight {
  int rank = -1, attempt = 0;
  std::int64_t silent_ms = 0;  ///< since the last message of the process, which also sends while it waits
  std::vector<flight::FlightGroup> groups;  ///< empty without a flight record
};
/// Agent to leader, every second, of each rank of its node that does not report: its last sign of life, as
/// seen from outside (launcher/agent/ranks/signs_of_life.hpp).
struct RankSeen {
  int rank = -1, attempt = 0;
  std::int64_t still_ms = 0;     ///< since the sign, or since the first look
  std::string sign;              ///< "output", "heartbeat", "files", "network", "links"; "": none yet
  std::int64_t cpu_percent = 0;  ///< of a core, in the last second
  std::string state;  ///< of its processes, as the kernel's letter: T if one is stopped, else D, R, S
  static constexpr char look_hangs = '-';  ///< in place of a letter: its agent waits for an answer
};
/// Two values that must be equal were not: silent data corruption. Logical rank 0 reports it for all.
struct RankDoubt {
  int rank = -1, attempt = 0;
  /// The newest step at which the same check passed: RankEnv::trusted_step of the next attempt.
  std::int64_t step = 0;
  /// Ranks that differ from the rest. When they are on several nodes, the faulty node is unknown.
  std::vector<int> accused;
  std::string check;  ///< "replicas" or "micro_batch"
  std::string why;
};
/// The program of the rank has taken an order of its agent; or, agent to leader, SIGTERM was sent to the
/// rank.
struct RankHeard {
  enum class What { save, stop, pause, sigterm };
  int rank = -1, attempt = 0;
  What what = What::save;
};
/// Agent to rank: your finished or failed message has been received.
struct Taken {};
/// Agent to a process with the key of a rank: another process speaks for the rank (speaker.hpp).
struct NotSpeaker {
  std::string why;  ///< for people; "": they have been told
};
/// The outcome of a checkpoint; leader to agent to rank.
struct CommitOutcome {
  int attempt = 0;
  std::int64_t step = 0;
  bool durable = false;
  std::string why;
};

/// Leader to agent to the ranks: pause after the current step, or continue.
struct Pause {
  bool on = false;
};
/// `holdfast drill` to an agent: inject this fault now (launcher/drill/faults.hpp), into the agent's node or
/// into a rank. Refused unless drill.allowed.
struct Inject {
  std::string fault;
  int rank = -1;  ///< -1: the node itself
  double seconds = 0;
  std::uint64_t seed = 0;
};

// --- between the PMIx servers of an attempt, through their agents and the leader ---
// What ranks publish are bytes. On the wire they are base64, behind the JSON as the payload of a vote.
inline constexpr std::size_t max_published = 5 << 20;
/// PMIx server to agent: this rank may be started, with these variables.
struct PmixRank {
  int rank = -1, attempt = 0;
  std::vector<std::string> environment;  ///< "NAME=value"
};
/// PMIx server to leader: the node's ranks of `set` have come to their `number`th fence, with what they
/// published. Once all `nodes` of the set have come, the leader answers those that wait.
struct PmixFence {
  int attempt = 0;
  std::string set;  ///< names a set of ranks
  std::int64_t number = 0;
  int nodes = 0;
  bool waits = true;  ///< false: the node has had the answer, and says this for others that have not
  std::string published;
};
struct PmixFenced {
  int attempt = 0;
  std::string set;
  std::int64_t number = 0;
  bool ok = false;        ///< false: it is too much for a message
  std::string published;  ///< by all of them
};
/// PMIx server to leader to the PMIx server of that rank: what has it published? Answered by PmixPublished.
struct PmixQuestion {
  int attempt = 0, rank = -1;
  int asker = -1;  ///< node in the roster; the leader fills it in
};
struct PmixPublished {
  int attempt = 0, rank = -1, asker = -1;
  int status = 0;  ///< a pmix_status_t
  std::string published;
};
/// Agent to PMIx server: there is a new leader, which has heard of no fence and no question.
struct PmixRepeat {};

// --- leader and agent ---
/// Agent to leader: the answer to its hello, and every heartbeat.
struct Heartbeat {
  std::string node;
  int attempt = 0;                  ///< highest attempt this agent has heard of
  std::vector<RankProgress> ranks;  ///< live ranks of that attempt on this node
  /// Why snapshot buffers of this node are not copied to its partner node now; empty: they are, if there are
  /// any.
  std::string copies_off = {};
};
struct LeaderHeartbeat {
  int term = 0;
};
/// Leader to agent: end all processes of lower attempts, then answer Cleared.
struct Clear {
  int term = 0, attempt = 0;
};
/// What the snapshot buffers of a rank hold, by a seal in the memory of a node.
struct SealedState {
  int rank = -1;
  std::int64_t step = -1;
  int attempt = 0, world = 0;  ///< of the rank that sealed it
  bool copy = false;           ///< of a rank of another node
  bool operator==(const SealedState&) const = default;
};
struct Cleared {
  int attempt = 0;
  int free_port = 0;  ///< on which a program could listen on this node just now; 0: none was found
  int mover = 0;      ///< port of its mover; 0: it has none
  std::vector<SealedState> sealed = {};
};
/// Agent to leader: processes of lower attempts have been killed and are still there. Told some time after
/// Clear, and again while they are.
struct ProcessesLeft {
  int attempt = 0;  ///< that is to start
  std::string why;  ///< what they wait for, in words
};
/// Leader to agent: have the state (step, of_attempt) of these ranks on this node. Answered by StateFetched.
struct FetchState {
  struct From {
    int rank = -1;
    std::string node;  ///< that has it
    int port = 0;      ///< of its mover
  };
  int attempt = 0;
  std::int64_t step = -1;
  int of_attempt = 0;
  std::vector<From> from;
};
struct StateFetched {
  int attempt = 0;
  std::int64_t step = -1;
  int of_attempt = 0;
  int rank = -1;         ///< whose state cannot be had; -1: all are there
  std::string why;       ///< "": all are there
  bool no_room = false;  ///< it cannot be kept on this node; another node may have room for it
};
/// Ranks are sent at most this many of the durable steps: the newest ones.
inline constexpr std::size_t max_durable_steps = 64;
/// Leader to agent: start the ranks of this slot. It may come again, and is then no news.
struct StartRanks {
  int term = 0, attempt = 0, slot = 0, ranks_per_node = 0, master_port = 0;
  std::string master;              ///< address of slot 0's node
  std::vector<std::string> nodes;  ///< by slot
  std::vector<int> movers = {};    ///< port of each slot's mover; 0: it has none
  StartState from = {};
};
/// Leader to agent: the run is over; end all processes and exit with this code.
struct Finish {
  int exit_code = 0;
};

/// One observation on a node that may explain a failure.
struct Sign {
  /// A row of launcher/diagnose/signs.hpp: "xid", "oom_kill", "no_space", "link_down", ...
  std::string kind;
  int rank = -1;            ///< -1: of the node
  std::int64_t code = 0;    ///< Xid, signal, exit code or errno, depending on the kind
  std::int64_t age_ms = 0;  ///< its age when this was sent (the clocks of nodes differ)
  std::string text;         ///< the evidence: a kernel line, a counter, a path
  /// Of a rank: its own. Of the node: the newest whose ranks had been started there when it was seen; 0:
  /// none.
  int attempt = 0;
};
/// Agent to leader: new signs. Sent before the RankExited that they may explain.
struct NodeSigns {
  std::vector<Sign> signs;
};
/// Agent to leader: is the node fit to train? A waiting spare sends it regularly, any node after CheckNode.
struct NodeHealth {
  enum class Fitness { ok, warning, critical, unknown };
  struct Finding {
    std::string check;  ///< "gpu.count", "nic.state", ...
    Fitness fitness = Fitness::unknown;
    std::string says;
  };
  Fitness fitness = Fitness::unknown;
  std::string why;                     ///< the worst findings
  std::string numerics;                ///< hash of the numerics probe; "": not run
  std::vector<Finding> findings = {};  ///< that are critical or a warning
  static constexpr std::size_t max_findings = 32;
};
inline constexpr std::array fitness_names = {"ok", "warning", "critical", "unknown"};  // in the enum's order
const char* name_of(RankHeard::What what);
const char* name_of(NodeHealth::Fitness fitness);
std::optional<NodeHealth::Fitness> fitness_called(std::string_view name);
/// Leader to agent: answer NodeHealth; with `numerics`, once more after the numerics probe, if that has not
/// run.
struct CheckNode {
  bool numerics = true;
};
/// Leader to agent: send the stacks of this rank. Answered by Stacks within seconds.
struct DumpStacks {
  int attempt = 0, rank = -1;
};
struct Stacks {
  int attempt = 0, rank = -1;
  std::string text;
};
/// `holdfast ctl` to any agent, which forwards it to the leader; answered by OrderTaken with the same id.
struct Order {
  enum class Verb { save, stop, pause, resume, evict, spares };
  std::string id;
  Verb verb = Verb::save;
  std::string node;  ///< for evict
  std::string by;    ///< who asks: user@host
};
struct OrderTaken {
  std::string id;
  bool taken = false;
  std::string says;    ///< why it was refused, or what happens now; for `spares` JSON
  bool again = false;  ///< there is no leader at the moment: try again
};

// Drain (rank_link.hpp) is a message, too. As a request: job monitor to agent, agent to leader. As an order:
// leader to agent to the ranks of its attempt.

// --- election ---
/// Agent to candidate.
struct Answer {
  bool grant = false;
  int term = 0;
  std::int64_t leader_age_ms = -1;
};

/// All there are.
using Message =
    std::variant<Hello, RankStarted, RankProgress, RankMetrics, RankWaits, RankRestored, RankVote, RankSealed,
                 NodeVotes, RankFinished, RankFailed, RankExited, RankFlight, RankSeen, RankDoubt, RankHeard,
                 Taken, NotSpeaker, CommitOutcome, Pause, Inject, PmixRank, PmixFence, PmixFenced,
                 PmixQuestion, PmixPublished, PmixRepeat, Heartbeat, LeaderHeartbeat, Clear, Cleared,
                 ProcessesLeft, FetchState, StateFetched, StartRanks, NodeSigns, NodeHealth, CheckNode,
                 DumpStacks, Stacks, Finish, Drain, Order, OrderTaken, Answer>;

// What each end may be sent. decode() refuses whatever else comes, and the receiver visits every alternative.
using AgentToLeader =
    std::variant<Heartbeat, Cleared, ProcessesLeft, StateFetched, RankStarted, RankWaits, RankRestored,
                 NodeVotes, RankDoubt, RankFlight, RankSeen, RankHeard, RankFinished, RankFailed, RankExited,
                 PmixFence, PmixQuestion, PmixPublished, NodeSigns, NodeHealth, Stacks, Drain, Order>;
using LeaderToAgent =
    std::variant<LeaderHeartbeat, Clear, FetchState, StartRanks, PmixFenced, PmixQuestion, PmixPublished,
                 CommitOutcome, Drain, Pause, CheckNode, DumpStacks, OrderTaken, Finish>;
using RankToAgent = std::variant<RankProgress, RankMetrics, RankWaits, RankRestored, RankVote, RankSealed,
                                 RankDoubt, RankHeard, RankFinished, RankFailed>;
using PmixToAgent = std::variant<PmixRank, PmixFence, PmixQuestion, PmixPublished>;
using AgentToPmix = std::variant<PmixFenced, PmixQuestion, PmixPublished, PmixRepeat>;
using AgentToRank = std::variant<CommitOutcome, Drain, Pause, Inject, Taken, NotSpeaker>;
using CallerToAgent = std::variant<Order, Inject>;

/// One line, without its newline: the JSON text, and of votes and of what ranks publish a tab and their
/// payload.
std::string encode(const Message& message);
/// `Heard`: one message or a variant of those above. Nothing when `line` is none of them, or not well-formed;
/// `why` then names the field.
template <class Heard = Message>
std::optional<Heard> decode(std::string_view line, std::string& why);

/// Functions for the alternatives of a variant, for std::visit: one that is forgotten does not compile.
template <class... Function>
struct Overloaded : Function... {
  using Function::operator()...;
};

}  // namespace holdfast::control
