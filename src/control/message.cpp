#include "src/control/message.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace holdfast::control {
namespace {

using nlohmann::json;
constexpr std::int64_t most_ranks = 1 << 20, most_steps = std::int64_t{1} << 53, most_pids = 1 << 22;
constexpr std::size_t most_text = 4096, most_payload = 6 << 20;
// Of what a program says in its own words. A byte that is no UTF-8 goes out as U+FFFD, which is three.
constexpr std::size_t most_said = 4096;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

const json& field(const json& j, const char* name) {
  const auto it = j.find(name);
  if (it == j.end()) throw Refused(std::string(name) + " is missing");
  return *it;
}
std::int64_t whole(const json& j, const char* name, std::int64_t low, std::int64_t high) {
  const json& f = field(j, name);
  if (!f.is_number_integer() || (f.is_number_unsigned() && f.get<std::uint64_t>() > INT64_MAX))
    throw Refused(std::string(name) + " is not a whole number");
  const auto value = f.get<std::int64_t>();
  if (value < low || value > high) throw Refused(std::string(name) + " is out of bounds");
  return value;
}
int small(const json& j, const char* name, std::int64_t low, std::int64_t high) {
  return static_cast<int>(whole(j, name, low, high));
}
bool truth(const json& j, const char* name) {
  const json& f = field(j, name);
  if (!f.is_boolean()) throw Refused(std::string(name) + " is not true or false");
  return f.get<bool>();
}
std::string text(const json& f, const char* name, std::size_t most = most_text) {
  if (!f.is_string() || f.get_ref<const std::string&>().size() > most)
    throw Refused(std::string(name) + " is not a text of bearable length");
  return f.get<std::string>();
}
std::string text_of(const json& j, const char* name, std::size_t most = most_text) {
  return text(field(j, name), name, most);
}
double real(const json& j, const char* name) {
  const json& f = field(j, name);
  if (!f.is_number()) throw Refused(std::string(name) + " is not a number");
  return f.get<double>();
}
const json& list(const json& j, const char* name, std::size_t most) {
  const json& f = field(j, name);
  if (!f.is_array() || f.size() > most)
    throw Refused(std::string(name) + " is not a list of bearable length");
  return f;
}
std::uint64_t key_of(const json& j, const char* name) {
  const json& f = field(j, name);
  if (!f.is_number_unsigned() || f.get<std::uint64_t>() == 0)
    throw Refused(std::string(name) + " is not a positive whole number");
  return f.get<std::uint64_t>();
}
int rank_of(const json& j) { return small(j, "rank", 0, most_ranks); }
int attempt_of(const json& j) { return small(j, "attempt", 0, INT32_MAX); }
int epoch_of(const json& j) { return small(j, "epoch", 0, INT32_MAX); }
std::int64_t step_of(const json& j) { return whole(j, "step", -1, most_steps); }
int status_of(const json& j, const char* name = "status") { return small(j, name, -1, 65535); }

constexpr std::array role_names = {"rank", "shim", "leader", "candidate", "spawner", "keeper"};
constexpr std::array phase_names = {"starting",   "restoring", "data",       "forward",  "backward",
                                    "collective", "optimizer", "checkpoint", "finishing"};
constexpr std::array collective_names = {"all_gather", "fold_leaves", "exchange_nodes",
                                         "all_reduce", "broadcast",   "barrier"};

template <class Enum, std::size_t n>
Enum one_of(const json& j, const char* name, const std::array<const char*, n>& names) {
  const std::string value = text_of(j, name);
  for (std::size_t i = 0; i < n; ++i)
    if (value == names[i]) return static_cast<Enum>(i);
  throw Refused(std::string(name) + " is unknown");
}

// One row per message: its name on the wire, how it is written, how it is read.
// --------------------------------------
template <class T>
struct Wire;

template <>
struct Wire<Hello> {
  static constexpr auto name = "hello";
  static json write(const Hello& m) {
    return {{"role", role_names[static_cast<std::size_t>(m.role)]},
            {"node", m.node},
            {"epoch", m.epoch},
            {"attempt", m.attempt},
            {"rank", m.rank},
            {"pid", m.pid}};
  }
  static Hello read(const json& j) {
    return {
        one_of<Hello::Role>(j, "role", role_names), text_of(j, "node", 256),      epoch_of(j), attempt_of(j),
        small(j, "rank", -1, most_ranks),           whole(j, "pid", 0, most_pids)};
  }
};
template <>
struct Wire<RankStarted> {
  static constexpr auto name = "rank_started";
  static json write(const RankStarted& m) {
    return {{"rank", m.rank}, {"attempt", m.attempt}, {"pid", m.pid}};
  }
  static RankStarted read(const json& j) {
    return {rank_of(j), attempt_of(j), whole(j, "pid", 0, most_pids)};
  }
};
template <>
struct Wire<RankProgress> {
  static constexpr auto name = "progress";
  static json write(const RankProgress& m) {
    return {{"rank", m.rank}, {"attempt", m.attempt}, {"step", m.step}, {"phase", name_of(m.phase)}};
  }
  static RankProgress read(const json& j) {
    return {rank_of(j), attempt_of(j), step_of(j), one_of<Phase>(j, "phase", phase_names)};
  }
};
template <>
struct Wire<RankRestored> {
  static constexpr auto name = "restored";
  static json write(const RankRestored& m) {
    return {{"rank", m.rank},        {"attempt", m.attempt},    {"step", m.from.step},
            {"level", m.from.level}, {"digest", m.from.digest}, {"note", m.from.note.substr(0, most_said)}};
  }
  static RankRestored read(const json& j) {
    return {
        rank_of(j),
        attempt_of(j),
        {step_of(j), text_of(j, "level", 64), text_of(j, "digest", 64), text_of(j, "note", 3 * most_said)}};
  }
};
template <>
struct Wire<RankVote> {
  static constexpr auto name = "vote";
  static json write(const RankVote& m) {
    return {{"rank", m.rank}, {"attempt", m.attempt}, {"step", m.step}, {"ok", m.ok}, {"payload", m.payload}};
  }
  static RankVote read(const json& j) {
    return {rank_of(j), attempt_of(j), step_of(j), truth(j, "ok"), text_of(j, "payload", most_payload)};
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
            {"why", m.why.substr(0, most_said)}};
  }
  static RankFailed read(const json& j) {
    return {rank_of(j), attempt_of(j), status_of(j, "exit_code"), text_of(j, "why", 3 * most_said)};
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
    g.size = static_cast<std::uint32_t>(whole(j, "size", 1, most_ranks));
    g.member = static_cast<std::uint32_t>(whole(j, "member", 0, g.size - 1));
    // Nobody finishes what he has not entered, or enters what is not in his queue.
    const std::int64_t queued = whole(j, "queued", 0, most_steps), started = whole(j, "started", 0, queued);
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
    RankFlight m{rank_of(j), attempt_of(j), whole(j, "silent_ms", 0, most_steps), {}};
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
struct Wire<Verdict> {
  static constexpr auto name = "verdict";
  static json write(const Verdict& m) {
    return {{"attempt", m.attempt},
            {"step", m.step},
            {"durable", m.durable},
            {"why", m.why.substr(0, most_said)}};
  }
  static Verdict read(const json& j) {
    return {attempt_of(j), step_of(j), truth(j, "durable"), text_of(j, "why", 3 * most_said)};
  }
};
template <>
struct Wire<Beat> {
  static constexpr auto name = "beat";
  static json write(const Beat& m) {
    json ranks = json::array();
    for (const auto& r : m.ranks) ranks.push_back(Wire<RankProgress>::write(r));
    return {{"node", m.node}, {"attempt", m.attempt}, {"mpirun", m.mpirun}, {"ranks", ranks}};
  }
  static Beat read(const json& j) {
    Beat m{text_of(j, "node", 256), attempt_of(j), truth(j, "mpirun"), {}};
    for (const json& r : list(j, "ranks", 4096)) {
      if (!r.is_object()) throw Refused("ranks holds something that is not an object");
      m.ranks.push_back(Wire<RankProgress>::read(r));
    }
    return m;
  }
};
template <>
struct Wire<LeaderBeat> {
  static constexpr auto name = "leader_beat";
  static json write(const LeaderBeat& m) { return {{"epoch", m.epoch}}; }
  static LeaderBeat read(const json& j) { return {epoch_of(j)}; }
};
template <>
struct Wire<Clear> {
  static constexpr auto name = "clear";
  static json write(const Clear& m) { return {{"epoch", m.epoch}, {"attempt", m.attempt}}; }
  static Clear read(const json& j) { return {epoch_of(j), attempt_of(j)}; }
};
template <>
struct Wire<Cleared> {
  static constexpr auto name = "cleared";
  static json write(const Cleared& m) { return {{"attempt", m.attempt}}; }
  static Cleared read(const json& j) { return {attempt_of(j)}; }
};
template <>
struct Wire<StartRanks> {
  static constexpr auto name = "start_ranks";
  static json write(const StartRanks& m) {
    json ranks = json::array();
    for (const auto& r : m.ranks) ranks.push_back({{"rank", r.rank}, {"local_rank", r.local_rank}});
    return {{"epoch", m.epoch},
            {"attempt", m.attempt},
            {"world", m.world},
            {"ranks_per_node", m.ranks_per_node},
            {"master_port", m.master_port},
            {"master", m.master},
            {"ranks", ranks}};
  }
  static StartRanks read(const json& j) {
    StartRanks m{epoch_of(j),
                 attempt_of(j),
                 small(j, "world", 1, most_ranks),
                 small(j, "ranks_per_node", 1, 4096),
                 small(j, "master_port", 0, 65535),
                 text_of(j, "master", 256),
                 {}};
    for (const json& r : list(j, "ranks", 4096)) {
      if (!r.is_object()) throw Refused("ranks holds something that is not an object");
      m.ranks.push_back({rank_of(r), small(r, "local_rank", 0, 4095)});
    }
    return m;
  }
};
template <>
struct Wire<StartMpirun> {
  static constexpr auto name = "start_mpirun";
  static json write(const StartMpirun& m) {
    return {{"epoch", m.epoch}, {"attempt", m.attempt}, {"slots", m.slots}};
  }
  static StartMpirun read(const json& j) {
    StartMpirun m{epoch_of(j), attempt_of(j), {}};
    for (const json& a : list(j, "slots", 1 << 16)) m.slots.push_back(text(a, "slots", 256));
    if (m.slots.empty()) throw Refused("slots is empty");
    return m;
  }
};
template <>
struct Wire<MpirunExited> {
  static constexpr auto name = "mpirun_exited";
  static json write(const MpirunExited& m) { return {{"attempt", m.attempt}, {"status", m.status}}; }
  static MpirunExited read(const json& j) { return {attempt_of(j), status_of(j)}; }
};
template <>
struct Wire<Finish> {
  static constexpr auto name = "finish";
  static json write(const Finish& m) { return {{"exit_code", m.exit_code}}; }
  static Finish read(const json& j) { return {small(j, "exit_code", 0, 255)}; }
};
template <>
struct Wire<Drain> {
  static constexpr auto name = "drain";
  static json write(const Drain& m) { return {{"stop", m.stop}, {"reason", m.reason.substr(0, most_said)}}; }
  static Drain read(const json& j) { return {truth(j, "stop"), text_of(j, "reason", 3 * most_said)}; }
};
template <>
struct Wire<Answer> {
  static constexpr auto name = "answer";
  static json write(const Answer& m) {
    return {{"grant", m.grant}, {"epoch", m.epoch}, {"leader_age_ms", m.leader_age_ms}};
  }
  static Answer read(const json& j) {
    return {truth(j, "grant"), epoch_of(j), whole(j, "leader_age_ms", -1, INT64_MAX)};
  }
};
template <>
struct Wire<Exec> {
  static constexpr auto name = "exec";
  static json write(const Exec& m) { return {{"command", m.command}}; }
  static Exec read(const json& j) { return {text_of(j, "command", 1 << 20)}; }
};
template <>
struct Wire<Exited> {
  static constexpr auto name = "exited";
  static json write(const Exited& m) { return {{"status", m.status}}; }
  static Exited read(const json& j) { return {status_of(j)}; }
};

template <class T>
bool try_read(const std::string& name, const json& body, std::optional<Message>& out) {
  if (name != Wire<T>::name) return false;
  out = Wire<T>::read(body);
  return true;
}
template <class... T>
void read_any(std::variant<T...>*, const std::string& name, const json& body, std::optional<Message>& out) {
  if (!(try_read<T>(name, body, out) || ...))
    throw Refused("no message is called '" + name.substr(0, 64) + "'");
}

}  // namespace

const char* name_of(Phase phase) { return phase_names[static_cast<std::size_t>(phase)]; }

std::string encode(const Message& message) {
  return std::visit(
      [](const auto& m) {
        json j = Wire<std::decay_t<decltype(m)>>::write(m);
        j["m"] = Wire<std::decay_t<decltype(m)>>::name;
        return j.dump(-1, ' ', false, json::error_handler_t::replace);
      },
      message);
}

std::optional<Message> decode(std::string_view line, std::string& why) {
  std::optional<Message> out;
  const json j = json::parse(line, nullptr, false);
  if (j.is_discarded() || !j.is_object()) return why = "it is not a JSON object", out;
  try {
    read_any(static_cast<Message*>(nullptr), text_of(j, "m", 64), j, out);
  } catch (const Refused& refused) {
    out.reset();
    why = refused.what();
  }
  return out;
}

}  // namespace holdfast::control
