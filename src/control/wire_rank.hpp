#pragma once
// Private to the codec: the messages from and to ranks.
#include "src/control/wire.hpp"

namespace holdfast::control::wire {

inline constexpr std::array phase_names = {"starting",   "restoring", "data",       "forward",   "backward",
                                           "collective", "optimizer", "checkpoint", "finishing", "paused"};
inline constexpr std::array collective_names = {"all_gather", "fold_leaves", "exchange_nodes",
                                                "all_reduce", "broadcast",   "barrier"};

template <>
struct Wire<RankStarted> {
  static constexpr auto name = "rank_started";
  static json write(const RankStarted& m) {
    return {{"rank", m.rank}, {"attempt", m.attempt}, {"pid", m.pid}};
  }
  static RankStarted read(const json& j) { return {rank_of(j), attempt_of(j), whole(j, "pid", 0, max_pids)}; }
};
template <>
struct Wire<RankProgress> {
  static constexpr auto name = "progress";
  static json write(const RankProgress& m) {
    return {{"rank", m.rank},
            {"attempt", m.attempt},
            {"step", m.step},
            {"phase", name_of(m.phase)},
            {"compute_us", m.compute_us},
            {"moves", m.moves}};
  }
  static RankProgress read(const json& j) {
    return {rank_of(j),
            attempt_of(j),
            step_of(j),
            one_of<Phase>(j, "phase", phase_names),
            whole(j, "compute_us", 0, max_steps),
            whole(j, "moves", 0, max_steps)};
  }
};
template <>
struct Wire<RankRestored> {
  static constexpr auto name = "restored";
  static json write(const RankRestored& m) {
    return {{"rank", m.rank},        {"attempt", m.attempt},    {"step", m.from.step},
            {"level", m.from.level}, {"digest", m.from.digest}, {"note", m.from.note.substr(0, max_said)}};
  }
  static RankRestored read(const json& j) {
    return {
        rank_of(j),
        attempt_of(j),
        {step_of(j), text_of(j, "level", 64), text_of(j, "digest", 64), text_of(j, "note", 3 * max_said)}};
  }
};
template <>
struct Wire<RankVote> {
  static constexpr auto name = "vote";
  static json write(const RankVote& m) {
    return {{"rank", m.rank}, {"attempt", m.attempt}, {"step", m.step}, {"ok", m.ok}, {"payload", m.payload}};
  }
  static RankVote read(const json& j) {
    return {rank_of(j), attempt_of(j), step_of(j), truth(j, "ok"), text_of(j, "payload", max_payload)};
  }
};
template <>
struct Wire<RankFinished> {
  static constexpr auto name = "finished";
  static json write(const RankFinished& m) {
    json j = {{"rank", m.rank}, {"attempt", m.attempt}, {"state", nullptr}};
    // JSON has no spelling for NaN, and a diverged run still ends.
    if (m.state)
      j["state"] = {{"step", m.state->step},
                    {"tokens", m.state->tokens},
                    {"loss", std::isfinite(m.state->loss) ? json(m.state->loss) : json(nullptr)},
                    {"digest", m.state->state_digest}};
    return j;
  }
  static RankFinished read(const json& j) {
    RankFinished m{rank_of(j), attempt_of(j), std::nullopt};
    const json& s = field(j, "state");
    if (s.is_null()) return m;
    if (!s.is_object()) throw Refused("state is not an object");
    const double loss = field(s, "loss").is_null() ? std::nan("") : real(s, "loss");
    m.state = FinalState{step_of(s), whole(s, "tokens", 0, INT64_MAX), loss, text_of(s, "digest", 64)};
    return m;
  }
};
template <>
struct Wire<RankFailed> {
  static constexpr auto name = "failed";
  static json write(const RankFailed& m) {
    return {{"rank", m.rank},
            {"attempt", m.attempt},
            {"exit_code", m.exit_code},
            {"why", m.why.substr(0, max_said)}};
  }
  static RankFailed read(const json& j) {
    return {rank_of(j), attempt_of(j), status_of(j, "exit_code"), text_of(j, "why", 3 * max_said)};
  }
};
template <>
struct Wire<RankExited> {
  static constexpr auto name = "rank_exited";
  static json write(const RankExited& m) {
    return {{"rank", m.rank}, {"attempt", m.attempt}, {"status", m.status}};
  }
  static RankExited read(const json& j) { return {rank_of(j), attempt_of(j), status_of(j)}; }
};
template <>
struct Wire<flight::FlightGroup> {
  static json write(const flight::FlightGroup& g) {
    return {{"key", g.key},           {"name", static_cast<const char*>(g.name)},
            {"queued", g.queued},     {"started", g.started},
            {"finished", g.finished}, {"operation", collective_names[static_cast<std::size_t>(g.operation)]},
            {"size", g.size},         {"member", g.member}};
  }
  static flight::FlightGroup read(const json& j) {
    flight::FlightGroup g;
    g.key = key_of(j, "key");
    const std::string name = text_of(j, "name", flight::flight_name_bytes - 1);
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; }))
      throw Refused("name has characters that are not ASCII");
    std::copy(name.begin(), name.end(), g.name);
    g.operation = one_of<flight::Collective>(j, "operation", collective_names);
    g.size = static_cast<std::uint32_t>(whole(j, "size", 1, max_ranks));
    g.member = static_cast<std::uint32_t>(whole(j, "member", 0, g.size - 1));
    // A rank cannot finish a collective before entering it, nor enter one before it is in its queue.
    const std::int64_t queued = whole(j, "queued", 0, max_steps), started = whole(j, "started", 0, queued);
    g.queued = static_cast<std::uint64_t>(queued), g.started = static_cast<std::uint64_t>(started);
    g.finished = static_cast<std::uint64_t>(whole(j, "finished", 0, started));
    return g;
  }
};
template <>
struct Wire<RankFlight> {
  static constexpr auto name = "flight";
  static json write(const RankFlight& m) {
    json groups = json::array();
    for (const auto& g : m.groups) groups.push_back(Wire<flight::FlightGroup>::write(g));
    return {{"rank", m.rank}, {"attempt", m.attempt}, {"silent_ms", m.silent_ms}, {"groups", groups}};
  }
  static RankFlight read(const json& j) {
    RankFlight m{rank_of(j), attempt_of(j), whole(j, "silent_ms", 0, max_steps), {}};
    for (const json& g : list(j, "groups", flight::FlightRecorder::groups)) {
      if (!g.is_object()) throw Refused("groups holds something that is not an object");
      m.groups.push_back(Wire<flight::FlightGroup>::read(g));
    }
    return m;
  }
};
template <>
struct Wire<Taken> {
  static constexpr auto name = "taken";
  static json write(const Taken&) { return json::object(); }
  static Taken read(const json&) { return {}; }
};
template <>
struct Wire<CommitOutcome> {
  static constexpr auto name = "commit_outcome";
  static json write(const CommitOutcome& m) {
    return {
        {"attempt", m.attempt}, {"step", m.step}, {"durable", m.durable}, {"why", m.why.substr(0, max_said)}};
  }
  static CommitOutcome read(const json& j) {
    return {attempt_of(j), step_of(j), truth(j, "durable"), text_of(j, "why", 3 * max_said)};
  }
};
template <>
struct Wire<Drain> {
  static constexpr auto name = "drain";
  static json write(const Drain& m) { return {{"stop", m.stop}, {"reason", m.reason.substr(0, max_said)}}; }
  static Drain read(const json& j) { return {truth(j, "stop"), text_of(j, "reason", 3 * max_said)}; }
};
template <>
struct Wire<RankDoubt> {
  static constexpr auto name = "doubt";
  static json write(const RankDoubt& m) {
    return {{"rank", m.rank},       {"attempt", m.attempt}, {"step", m.step},
            {"accused", m.accused}, {"check", m.check},     {"why", said(m.why)}};
  }
  static RankDoubt read(const json& j) {
    RankDoubt m{rank_of(j), attempt_of(j), step_of(j), {}, text_of(j, "check", 64), said_in(j, "why")};
    for (const json& r : list(j, "accused", 4096)) {
      if (!r.is_number_integer() || r < 0 || r > max_ranks)
        throw Refused("accused holds something that is no rank");
      m.accused.push_back(r.get<int>());
    }
    return m;
  }
};
template <>
struct Wire<Pause> {
  static constexpr auto name = "pause";
  static json write(const Pause& m) { return {{"on", m.on}}; }
  static Pause read(const json& j) { return {truth(j, "on")}; }
};
template <>
struct Wire<Inject> {
  static constexpr auto name = "inject";
  static json write(const Inject& m) {
    return {{"fault", m.fault}, {"rank", m.rank}, {"seconds", m.seconds}, {"seed", m.seed}};
  }
  static Inject read(const json& j) {
    const double seconds = real(j, "seconds");
    if (!(seconds >= 0 && seconds <= 86400)) throw Refused("seconds is out of bounds");
    return {text_of(j, "fault", 64), small(j, "rank", -1, max_ranks), seconds,
            static_cast<std::uint64_t>(whole(j, "seed", 0, max_steps))};
  }
};

}  // namespace holdfast::control::wire
