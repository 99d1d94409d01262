#pragma once
// Every message on the wire: its name, and the list of its fields with their bounds. Both directions of the
// codec walk the same list (fields.hpp). docs/protocol.md says what the messages are for.
#include "src/control/fields.hpp"
#include "src/control/message.hpp"

namespace holdfast::control {

inline constexpr std::int64_t max_nodes = 1 << 16, max_ranks = 1 << 20, max_steps = std::int64_t{1} << 53,
                              max_pids = 1 << 22;
inline constexpr std::size_t max_local_ranks = 4096, max_payload = NodeVotes::max_bytes;

inline constexpr Range a_rank{0, max_ranks}, rank_or_none{-1, max_ranks}, node_or_none{-1, max_nodes},
    a_count{0, INT32_MAX}, a_step{-1, max_steps}, a_pid{0, max_pids}, a_status{-1, 65535},
    a_span{0, max_steps}, a_port{0, 65535};
inline constexpr Text a_name{256}, a_word{64};
inline constexpr Words a_text{4096};
inline constexpr List<Range> step_list{0, max_durable_steps, {0, max_steps}};
template <class Bounds>
constexpr List<Bounds> up_to(std::size_t max, Bounds element) {
  return {0, max, element};
}

inline constexpr std::array phase_names = {"starting",   "restoring", "data",       "forward",   "backward",
                                           "collective", "optimizer", "checkpoint", "finishing", "paused"};
inline constexpr std::array collective_names = {
    "all_gather", "ordered_reduce_scatter", "exchange_partial_sums", "all_reduce", "broadcast", "barrier"};
inline constexpr std::array role_names = {"rank", "pmix", "leader", "candidate", "job_monitor", "caller"};
inline constexpr std::array heard_names = {"save", "stop", "pause", "sigterm"};
inline constexpr std::array order_names = {"save", "stop", "pause", "resume", "evict", "spares"};

/// `M` or const `M`: a list of fields is walked to write and to read.
template <class Self, class M>
concept Is = std::same_as<std::remove_const_t<Self>, M>;

template <class M>
inline constexpr const char* name_on_wire = nullptr;

// --- parts of messages ---

void fields(auto& f, Is<FinalState> auto& m) {
  f("step", m.step, a_step);
  f("tokens", m.tokens, Range{0, INT64_MAX});
  f("loss", m.loss, Measurement{});
  f("digest", m.state_digest, a_word);
}
void fields(auto& f, Is<flight::FlightGroup> auto& m) {
  f("key", m.key, NonZero{});
  f("name", m.name, Ascii{});
  f("operation", m.operation, Names{collective_names});
  f("size", m.size, Range{1, max_ranks});
  f("member", m.member, Range{0, static_cast<std::int64_t>(m.size) - 1});
  // No member finishes what it has not started, or starts what is not in its queue.
  f("queued", m.queued, a_span);
  f("started", m.started, Range{0, static_cast<std::int64_t>(m.queued)});
  f("finished", m.finished, Range{0, static_cast<std::int64_t>(m.started)});
}
void fields(auto& f, Is<Sign> auto& m) {
  f("kind", m.kind, Words{64});
  f("rank", m.rank, rank_or_none);
  f("code", m.code, Range{-max_steps, max_steps});
  f("age_ms", m.age_ms, a_span);
  f("text", m.text, a_text);
  f("attempt", m.attempt, a_count);
}

// --- of ranks ---

template <>
inline constexpr const char* name_on_wire<Hello> = "hello";
void fields(auto& f, Is<Hello> auto& m) {
  f("role", m.role, Names{role_names});
  f("node", m.node, a_name);
  f("term", m.term, a_count);
  f("attempt", m.attempt, a_count);
  f("rank", m.rank, rank_or_none);
  f("pid", m.pid, a_pid);
}

template <>
inline constexpr const char* name_on_wire<RankStarted> = "rank_started";
void fields(auto& f, Is<RankStarted> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("pid", m.pid, a_pid);
}

template <>
inline constexpr const char* name_on_wire<RankProgress> = "progress";
void fields(auto& f, Is<RankProgress> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("phase", m.phase, Names{phase_names});
  f("compute_us", m.compute_us, a_span);
  f("moves", m.moves, a_span);
}

void fields(auto& f, Is<Waits::Of> auto& m) {
  f("rank", m.rank, a_rank);
  f("us", m.us, a_span);
}
template <>
inline constexpr const char* name_on_wire<RankWaits> = "waits";
void fields(auto& f, Is<RankWaits> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("step", m.waits.step, a_step);
  f("window_us", m.waits.window_us, a_span);
  f("nodes", m.waits.nodes, a_count);
  f("median_us", m.waits.median_us, a_span);
  f("longest", m.waits.longest, up_to(Waits::max_named, Object{}));
}

template <>
inline constexpr const char* name_on_wire<RankMetrics> = "metrics";
void fields(auto& f, Is<RankMetrics> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("loss", m.loss, Measurement{});
  f("tokens", m.tokens, Range{0, INT64_MAX});
}

template <>
inline constexpr const char* name_on_wire<RankRestored> = "restored";
void fields(auto& f, Is<RankRestored> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("step", m.from.step, a_step);
  f("level", m.from.level, a_word);
  f("digest", m.from.digest, a_word);
  f("note", m.from.note, a_text);
}

template <>
inline constexpr const char* name_on_wire<RankVote> = "vote";
void fields(auto& f, Is<RankVote> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("ok", m.ok, Flag{});
  f("stall_us", m.stall_us, a_span);
}

template <>
inline constexpr const char* name_on_wire<RankSealed> = "sealed";
void fields(auto& f, Is<RankSealed> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
}

void fields(auto& f, Is<NodeVotes::Vote> auto& m) {
  f("rank", m.rank, a_rank);
  f("ok", m.ok, Flag{});
  f("bytes", m.bytes, Range{0, max_payload});
  f("stall_us", m.stall_us, a_span);
}
template <>
inline constexpr const char* name_on_wire<NodeVotes> = "node_votes";
void fields(auto& f, Is<NodeVotes> auto& m) {
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("votes", m.votes, List<Object>{1, max_local_ranks, {}});
}

template <>
inline constexpr const char* name_on_wire<RankFinished> = "finished";
void fields(auto& f, Is<RankFinished> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("state", m.state, OptionalObject{});
}

template <>
inline constexpr const char* name_on_wire<RankFailed> = "failed";
void fields(auto& f, Is<RankFailed> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("exit_code", m.exit_code, a_status);
  f("why", m.why, a_text);
}

template <>
inline constexpr const char* name_on_wire<RankExited> = "rank_exited";
void fields(auto& f, Is<RankExited> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("status", m.status, a_status);
}

template <>
inline constexpr const char* name_on_wire<RankFlight> = "flight";
void fields(auto& f, Is<RankFlight> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("silent_ms", m.silent_ms, a_span);
  f("groups", m.groups, up_to(flight::FlightRecorder::groups, Object{}));
}

template <>
inline constexpr const char* name_on_wire<RankSeen> = "seen";
void fields(auto& f, Is<RankSeen> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("still_ms", m.still_ms, a_span);
  f("sign", m.sign, a_word);
  f("cpu_percent", m.cpu_percent, a_span);
  f("state", m.state, a_word);
}

template <>
inline constexpr const char* name_on_wire<RankDoubt> = "doubt";
void fields(auto& f, Is<RankDoubt> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("accused", m.accused, up_to(max_local_ranks, a_rank));
  f("check", m.check, a_word);
  f("why", m.why, a_text);
}

template <>
inline constexpr const char* name_on_wire<RankHeard> = "heard";
void fields(auto& f, Is<RankHeard> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("what", m.what, Names{heard_names});
}

template <>
inline constexpr const char* name_on_wire<Taken> = "taken";
void fields(auto&, Is<Taken> auto&) {}

template <>
inline constexpr const char* name_on_wire<NotSpeaker> = "not_speaker";
void fields(auto& f, Is<NotSpeaker> auto& m) { f("why", m.why, a_text); }

template <>
inline constexpr const char* name_on_wire<CommitOutcome> = "commit_outcome";
void fields(auto& f, Is<CommitOutcome> auto& m) {
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("durable", m.durable, Flag{});
  f("why", m.why, a_text);
}

template <>
inline constexpr const char* name_on_wire<Drain> = "drain";
void fields(auto& f, Is<Drain> auto& m) {
  f("stop", m.stop, Flag{});
  f("reason", m.reason, a_text);
  f("until", m.until, a_span);
}

template <>
inline constexpr const char* name_on_wire<Pause> = "pause";
void fields(auto& f, Is<Pause> auto& m) { f("on", m.on, Flag{}); }

template <>
inline constexpr const char* name_on_wire<Inject> = "inject";
void fields(auto& f, Is<Inject> auto& m) {
  f("fault", m.fault, a_word);
  f("rank", m.rank, rank_or_none);
  f("seconds", m.seconds, RealRange{0, 86400});
  f("seed", m.seed, a_span);
}

// --- between PMIx servers ---

template <>
inline constexpr const char* name_on_wire<PmixRank> = "pmix_rank";
void fields(auto& f, Is<PmixRank> auto& m) {
  f("rank", m.rank, a_rank);
  f("attempt", m.attempt, a_count);
  f("environment", m.environment, up_to(256, Text{8192}));
}

template <>
inline constexpr const char* name_on_wire<PmixFence> = "pmix_fence";
void fields(auto& f, Is<PmixFence> auto& m) {
  f("attempt", m.attempt, a_count);
  f("set", m.set, a_word);
  f("number", m.number, a_span);
  f("nodes", m.nodes, Range{1, max_nodes});
  f("waits", m.waits, Flag{});
}

template <>
inline constexpr const char* name_on_wire<PmixFenced> = "pmix_fenced";
void fields(auto& f, Is<PmixFenced> auto& m) {
  f("attempt", m.attempt, a_count);
  f("set", m.set, a_word);
  f("number", m.number, a_span);
  f("ok", m.ok, Flag{});
}

template <>
inline constexpr const char* name_on_wire<PmixQuestion> = "pmix_question";
void fields(auto& f, Is<PmixQuestion> auto& m) {
  f("attempt", m.attempt, a_count);
  f("rank", m.rank, a_rank);
  f("asker", m.asker, node_or_none);
}

template <>
inline constexpr const char* name_on_wire<PmixPublished> = "pmix_published";
void fields(auto& f, Is<PmixPublished> auto& m) {
  f("attempt", m.attempt, a_count);
  f("rank", m.rank, a_rank);
  f("asker", m.asker, node_or_none);
  f("status", m.status, Range{INT32_MIN, INT32_MAX});
}

template <>
inline constexpr const char* name_on_wire<PmixRepeat> = "pmix_repeat";
void fields(auto&, Is<PmixRepeat> auto&) {}

// --- between agents and the leader ---

template <>
inline constexpr const char* name_on_wire<Heartbeat> = "beat";
void fields(auto& f, Is<Heartbeat> auto& m) {
  f("node", m.node, a_name);
  f("attempt", m.attempt, a_count);
  f("ranks", m.ranks, up_to(max_local_ranks, Object{}));
  f("copies_off", m.copies_off, a_text);
}

template <>
inline constexpr const char* name_on_wire<LeaderHeartbeat> = "leader_beat";
void fields(auto& f, Is<LeaderHeartbeat> auto& m) { f("term", m.term, a_count); }

template <>
inline constexpr const char* name_on_wire<Clear> = "clear";
void fields(auto& f, Is<Clear> auto& m) {
  f("term", m.term, a_count);
  f("attempt", m.attempt, a_count);
}

void fields(auto& f, Is<SealedState> auto& m) {
  f("rank", m.rank, a_rank);
  f("step", m.step, a_step);
  f("attempt", m.attempt, a_count);
  f("world", m.world, Range{1, max_ranks});
  f("copy", m.copy, Flag{});
}
template <>
inline constexpr const char* name_on_wire<Cleared> = "cleared";
void fields(auto& f, Is<Cleared> auto& m) {
  f("attempt", m.attempt, a_count);
  f("free_port", m.free_port, a_port);
  f("mover", m.mover, a_port);
  f("sealed", m.sealed, up_to(4 * max_local_ranks, Object{}));
}

template <>
inline constexpr const char* name_on_wire<ProcessesLeft> = "processes_left";
void fields(auto& f, Is<ProcessesLeft> auto& m) {
  f("attempt", m.attempt, a_count);
  f("why", m.why, a_text);
}

void fields(auto& f, Is<FetchState::From> auto& m) {
  f("rank", m.rank, a_rank);
  f("node", m.node, a_name);
  f("port", m.port, a_port);
}
template <>
inline constexpr const char* name_on_wire<FetchState> = "fetch_state";
void fields(auto& f, Is<FetchState> auto& m) {
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("of_attempt", m.of_attempt, a_count);
  f("from", m.from, up_to(max_local_ranks, Object{}));
}

template <>
inline constexpr const char* name_on_wire<StateFetched> = "state_fetched";
void fields(auto& f, Is<StateFetched> auto& m) {
  f("attempt", m.attempt, a_count);
  f("step", m.step, a_step);
  f("of_attempt", m.of_attempt, a_count);
  f("rank", m.rank, rank_or_none);
  f("why", m.why, a_text);
  f("no_room", m.no_room, Flag{});
}

template <>
inline constexpr const char* name_on_wire<StartRanks> = "start_ranks";
void fields(auto& f, Is<StartRanks> auto& m) {
  f("term", m.term, a_count);
  f("attempt", m.attempt, a_count);
  f("slot", m.slot, Range{0, max_nodes - 1});
  f("ranks_per_node", m.ranks_per_node, Range{1, max_local_ranks});
  f("master_port", m.master_port, a_port);
  f("master", m.master, a_name);
  f("nodes", m.nodes, List<Text>{1, max_nodes, a_name});
  f("trusted_step", m.from.trusted_step, a_step);
  f("durable_steps", m.from.durable_steps, step_list);
  f("movers", m.movers, up_to(max_nodes, a_port));
  f("sealed_step", m.from.sealed_step, a_step);
  f("sealed_attempt", m.from.sealed_attempt, a_count);
  f("sealed_level", m.from.sealed_level, a_word);
}

template <>
inline constexpr const char* name_on_wire<Finish> = "finish";
void fields(auto& f, Is<Finish> auto& m) { f("exit_code", m.exit_code, Range{0, 255}); }

template <>
inline constexpr const char* name_on_wire<NodeSigns> = "signs";
void fields(auto& f, Is<NodeSigns> auto& m) { f("signs", m.signs, up_to(256, Object{})); }

void fields(auto& f, Is<NodeHealth::Finding> auto& m) {
  f("check", m.check, a_word);
  f("fitness", m.fitness, Names{fitness_names});
  f("says", m.says, a_text);
}
template <>
inline constexpr const char* name_on_wire<NodeHealth> = "health";
void fields(auto& f, Is<NodeHealth> auto& m) {
  f("fitness", m.fitness, Names{fitness_names});
  f("why", m.why, a_text);
  f("numerics", m.numerics, a_word);
  f("findings", m.findings, up_to(NodeHealth::max_findings, Object{}));
}

template <>
inline constexpr const char* name_on_wire<CheckNode> = "check_node";
void fields(auto& f, Is<CheckNode> auto& m) { f("numerics", m.numerics, Flag{}); }

template <>
inline constexpr const char* name_on_wire<DumpStacks> = "dump_stacks";
void fields(auto& f, Is<DumpStacks> auto& m) {
  f("attempt", m.attempt, a_count);
  f("rank", m.rank, a_rank);
}

template <>
inline constexpr const char* name_on_wire<Stacks> = "stacks";
void fields(auto& f, Is<Stacks> auto& m) {
  f("attempt", m.attempt, a_count);
  f("rank", m.rank, a_rank);
  f("text", m.text, Words{64 << 10});
}

// --- of others ---

template <>
inline constexpr const char* name_on_wire<Order> = "order";
void fields(auto& f, Is<Order> auto& m) {
  f("id", m.id, a_word);
  f("verb", m.verb, Names{order_names});
  f("node", m.node, a_name);
  f("by", m.by, a_text);
}

template <>
inline constexpr const char* name_on_wire<OrderTaken> = "order_taken";
void fields(auto& f, Is<OrderTaken> auto& m) {
  f("id", m.id, a_word);
  f("taken", m.taken, Flag{});
  f("says", m.says, Words{1 << 20});
  f("again", m.again, Flag{});
}

template <>
inline constexpr const char* name_on_wire<Answer> = "answer";
void fields(auto& f, Is<Answer> auto& m) {
  f("grant", m.grant, Flag{});
  f("term", m.term, a_count);
  f("leader_age_ms", m.leader_age_ms, Range{-1, INT64_MAX});
}

}  // namespace holdfast::control
