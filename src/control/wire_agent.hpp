#pragma once
// Private to the codec: the messages between agents, leader, job monitor and callers.
#include "src/control/wire_rank.hpp"

namespace holdfast::control::wire {

inline constexpr std::array role_names = {"rank",    "shim",        "leader", "candidate",
                                          "spawner", "job_monitor", "caller"};

template <>
struct Wire<Hello> {
  static constexpr auto name = "hello";
  static json write(const Hello& m) {
    return {{"role", role_names[static_cast<std::size_t>(m.role)]},
            {"node", m.node},
            {"term", m.term},
            {"attempt", m.attempt},
            {"rank", m.rank},
            {"pid", m.pid}};
  }
  static Hello read(const json& j) {
    return {one_of<Hello::Role>(j, "role", role_names),
            text_of(j, "node", 256),
            term_of(j),
            attempt_of(j),
            small(j, "rank", -1, max_ranks),
            whole(j, "pid", 0, max_pids)};
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
  static json write(const LeaderBeat& m) { return {{"term", m.term}}; }
  static LeaderBeat read(const json& j) { return {term_of(j)}; }
};
template <>
struct Wire<Clear> {
  static constexpr auto name = "clear";
  static json write(const Clear& m) { return {{"term", m.term}, {"attempt", m.attempt}}; }
  static Clear read(const json& j) { return {term_of(j), attempt_of(j)}; }
};
template <>
struct Wire<Cleared> {
  static constexpr auto name = "cleared";
  static json write(const Cleared& m) { return {{"attempt", m.attempt}}; }
  static Cleared read(const json& j) { return {attempt_of(j)}; }
};
inline std::vector<std::int64_t> durable_steps_of(const json& j) {
  std::vector<std::int64_t> out;
  for (const json& step : list(j, "durable_steps", max_durable_steps)) {
    if (!step.is_number_integer() || step < 0 || step > max_steps)
      throw Refused("durable_steps holds something that is no step");
    out.push_back(step.get<std::int64_t>());
  }
  return out;
}
template <>
struct Wire<StartRanks> {
  static constexpr auto name = "start_ranks";
  static json write(const StartRanks& m) {
    json ranks = json::array();
    for (const auto& r : m.ranks) ranks.push_back({{"rank", r.rank}, {"local_rank", r.local_rank}});
    return {{"term", m.term},
            {"attempt", m.attempt},
            {"world", m.world},
            {"ranks_per_node", m.ranks_per_node},
            {"master_port", m.master_port},
            {"master", m.master},
            {"ranks", ranks},
            {"trusted_step", m.trusted_step},
            {"durable_steps", m.durable_steps}};
  }
  static StartRanks read(const json& j) {
    StartRanks m{term_of(j),
                 attempt_of(j),
                 small(j, "world", 1, max_ranks),
                 small(j, "ranks_per_node", 1, 4096),
                 small(j, "master_port", 0, 65535),
                 text_of(j, "master", 256),
                 {},
                 whole(j, "trusted_step", -1, max_steps),
                 durable_steps_of(j)};
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
    return {{"term", m.term},
            {"attempt", m.attempt},
            {"slots", m.slots},
            {"trusted_step", m.trusted_step},
            {"durable_steps", m.durable_steps}};
  }
  static StartMpirun read(const json& j) {
    StartMpirun m{
        term_of(j), attempt_of(j), {}, whole(j, "trusted_step", -1, max_steps), durable_steps_of(j)};
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
struct Wire<Answer> {
  static constexpr auto name = "answer";
  static json write(const Answer& m) {
    return {{"grant", m.grant}, {"term", m.term}, {"leader_age_ms", m.leader_age_ms}};
  }
  static Answer read(const json& j) {
    return {truth(j, "grant"), term_of(j), whole(j, "leader_age_ms", -1, INT64_MAX)};
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
template <>
struct Wire<Sign> {
  static json write(const Sign& s) {
    return {{"kind", s.kind.substr(0, 64)},
            {"rank", s.rank},
            {"code", s.code},
            {"age_ms", s.age_ms},
            {"text", said(s.text)}};
  }
  static Sign read(const json& j) {
    return {text_of(j, "kind", 3 * 64), small(j, "rank", -1, max_ranks),
            whole(j, "code", -max_steps, max_steps), whole(j, "age_ms", 0, max_steps), said_in(j, "text")};
  }
};
template <>
struct Wire<NodeSigns> {
  static constexpr auto name = "signs";
  static json write(const NodeSigns& m) {
    json signs = json::array();
    for (const auto& s : m.signs) signs.push_back(Wire<Sign>::write(s));
    return {{"signs", signs}};
  }
  static NodeSigns read(const json& j) {
    NodeSigns m;
    for (const json& s : list(j, "signs", 256)) {
      if (!s.is_object()) throw Refused("signs holds something that is not an object");
      m.signs.push_back(Wire<Sign>::read(s));
    }
    return m;
  }
};
inline constexpr std::array fitness_names = {"ok", "warning", "critical", "unknown"};
template <>
struct Wire<NodeHealth> {
  static constexpr auto name = "health";
  static json write(const NodeHealth& m) {
    return {{"fitness", fitness_names[static_cast<std::size_t>(m.fitness)]},
            {"why", said(m.why)},
            {"numerics", m.numerics}};
  }
  static NodeHealth read(const json& j) {
    return {one_of<NodeHealth::Fitness>(j, "fitness", fitness_names), said_in(j, "why"),
            text_of(j, "numerics", 64)};
  }
};
template <>
struct Wire<CheckNode> {
  static constexpr auto name = "check_node";
  static json write(const CheckNode&) { return json::object(); }
  static CheckNode read(const json&) { return {}; }
};
template <>
struct Wire<DumpStacks> {
  static constexpr auto name = "dump_stacks";
  static json write(const DumpStacks& m) { return {{"attempt", m.attempt}, {"rank", m.rank}}; }
  static DumpStacks read(const json& j) { return {attempt_of(j), rank_of(j)}; }
};
template <>
struct Wire<Stacks> {
  static constexpr auto name = "stacks";
  static json write(const Stacks& m) {
    return {{"attempt", m.attempt}, {"rank", m.rank}, {"text", m.text.substr(0, max_stacks)}};
  }
  static Stacks read(const json& j) {
    return {attempt_of(j), rank_of(j), text_of(j, "text", 3 * max_stacks)};
  }
};
inline constexpr std::array order_names = {"save", "stop", "pause", "resume", "evict", "spares"};
template <>
struct Wire<Order> {
  static constexpr auto name = "order";
  static json write(const Order& m) {
    return {{"id", m.id},
            {"verb", order_names[static_cast<std::size_t>(m.verb)]},
            {"node", m.node},
            {"by", said(m.by)}};
  }
  static Order read(const json& j) {
    return {text_of(j, "id", 64), one_of<Order::Verb>(j, "verb", order_names), text_of(j, "node", 256),
            said_in(j, "by")};
  }
};
template <>
struct Wire<OrderTaken> {
  static constexpr auto name = "order_taken";
  static json write(const OrderTaken& m) {
    return {{"id", m.id}, {"taken", m.taken}, {"says", m.says.substr(0, max_answer)}, {"again", m.again}};
  }
  static OrderTaken read(const json& j) {
    return {text_of(j, "id", 64), truth(j, "taken"), text_of(j, "says", 3 * max_answer), truth(j, "again")};
  }
};

}  // namespace holdfast::control::wire
