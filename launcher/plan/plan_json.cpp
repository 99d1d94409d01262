// plan.json and `holdfast plan --json`: the plan as data, and back.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "launcher/plan/plan.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/config/bind.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

json groups(int count, int limit, const std::function<std::vector<int>(int)>& group) {
  json out = json::array();
  for (int i = 0; i < std::min(count, limit); ++i) out.push_back(group(i));
  return out;
}

json parts_of(const HostMemory& memory) {
  json out = json::array();
  for (const auto& part : memory.parts)
    out.push_back(
        {{"name", part.name}, {"bytes", part.bytes}, {"in_shm", part.in_shm}, {"bound", part.bound}});
  return out;
}

template <class Choice>
Choice choice_in(const json& j, const char* key) {
  const std::string name = j.at(key);
  if (const auto choice = config::choice_called<Choice>(name)) return *choice;
  throw Error(Exit::runtime, fmt::format("the plan names an unknown {}", key), name);
}

}  // namespace

json to_json(const Plan& p) {
  json nodes = json::array(), ranks = json::array();
  for (const auto& n : p.nodes)
    nodes.push_back({{"name", n.name},
                     {"scalable_unit", n.scalable_unit},
                     {"slot", n.slot},
                     {"batch_host", n.batch_host}});
  for (const auto& r : p.ranks)
    ranks.push_back({{"rank", r.rank},
                     {"slot", r.slot},
                     {"local", r.local},
                     {"shard_group", r.shard_group},
                     {"replica_group", r.replica_group},
                     {"gpu", r.gpu},
                     {"nic", r.nic},
                     {"numa", r.numa},
                     {"rail", r.rail}});
  const auto& m = p.memory;
  const auto& v = p.survival;
  json losses = json::array();
  for (const auto& loss : v.losses)
    losses.push_back({{"loss", loss.loss}, {"level", loss.level}, {"steps", loss.steps}});
  return {
      {"schema_version", plan_schema_version},
      {"job", p.job},
      {"cluster", p.cluster},
      {"model", {{"name", p.model}, {"parameters", p.parameters}}},
      {"program", p.program},
      {"image", p.image},
      {"hypothetical", p.hypothetical},
      {"active", p.active},
      {"spares", p.spares},
      {"ranks_per_node", p.ranks_per_node},
      {"world", p.world()},
      {"shard",
       {{"strategy", config::name_of(p.strategy)}, {"group", p.group_size}, {"replicas", p.replicas()}}},
      {"precision",
       {{"parameters", config::name_of(p.precision.parameters)},
        {"reduce", config::name_of(p.precision.reduce)},
        {"buffers", config::name_of(p.precision.buffers)},
        {"moments", config::name_of(p.precision.moments)}}},
      {"step",
       {{"global_batch", p.global_batch},
        {"micro_batch", p.micro_batch},
        {"lanes", p.lanes},
        {"sequence", p.sequence}}},
      {"nodes", std::move(nodes)},
      {"ranks", std::move(ranks)},
      {"shard_groups", groups(p.replicas(), p.world(), [&](int g) { return p.shard_group(g); })},
      {"replica_groups", groups(p.group_size, p.world(), [&](int place) { return p.replica_group(place); })},
      {"leaders", p.leaders},
      {"memory_bytes",
       {{"state",
         {{"parameters", m.state.parameters},
          {"copies", m.state.copies},
          {"optimizer", m.state.optimizer},
          {"accumulators", m.state.accumulators},
          {"frozen", m.state.frozen}}},
        {"gathered", m.gathered},
        {"gradients", m.gradients},
        {"activations_estimate", m.activations},
        {"attention", m.attention},
        {"reserved", m.reserved},
        {"offloaded", m.offloaded},
        {"capacity", m.capacity}}},
      {"checkpoint",
       {{"bytes", p.checkpoint_bytes}, {"every", p.checkpoint_every}, {"floor_s", p.checkpoint_floor_s}}},
      {"local_level",
       {{"folder", p.local.folder},
        {"every", p.local.every},
        {"partner_every", p.local.partner_every},
        {"node_bytes", p.local.node_bytes}}},
      {"node_memory_bytes",
       {{"state", p.host.state},
        {"parts", parts_of(p.host)},
        {"total", p.host.total()},
        {"capacity", p.host.capacity},
        {"shm_total", p.host.total_in_shm()},
        {"shm_capacity", p.host.shm_capacity}}},
      {"survives",
       {{"nodes_lost", v.nodes_lost},
        {"losses", std::move(losses)},
        {"hours_between_losses", v.hours_between_losses},
        {"says", v.says}}},
      {"when_short",
       {{"nodes_together", p.shrinking.together},
        {"parts", p.shrinking.parts},
        {"steps", p.shrinking.steps},
        {"slowdown", p.shrinking.together > 0
                         ? json(slowdown(p.shrinking, p.shrinking.nodes - p.shrinking.together))
                         : json(nullptr)},
        {"says", p.when_short}}},
      {"environment", p.environment},
      {"warnings", p.warnings},
  };
}

Plan plan_from_json(const json& j) {
  try {
    if (const int version = j.at("schema_version"); version != plan_schema_version)
      throw Error(Exit::runtime, fmt::format("the plan has schema version {}", version),
                  fmt::format("this program reads {}", plan_schema_version),
                  "Use the Holdfast that wrote it?");
    Plan p;
    p.job = j.at("job");
    p.cluster = j.at("cluster");
    p.model = j.at("model").at("name");
    p.parameters = j.at("model").at("parameters");
    p.program = j.at("program").get<std::vector<std::string>>();
    p.image = j.at("image");
    p.hypothetical = j.at("hypothetical");
    p.active = j.at("active");
    p.spares = j.at("spares");
    p.ranks_per_node = j.at("ranks_per_node");
    p.strategy = choice_in<config::Strategy>(j.at("shard"), "strategy");
    p.group_size = j.at("shard").at("group");
    const auto& types = j.at("precision");
    const auto type = [&](const char* key) { return choice_in<config::Precision>(types, key); };
    p.precision = {type("parameters"), type("reduce"), type("buffers"), type("moments")};
    const auto& step = j.at("step");
    p.global_batch = step.at("global_batch"), p.micro_batch = step.at("micro_batch"),
    p.lanes = step.at("lanes"), p.sequence = step.at("sequence");
    for (const auto& n : j.at("nodes"))
      p.nodes.push_back({n.at("name"), n.at("scalable_unit"), n.at("slot"), n.at("batch_host")});
    for (const auto& r : j.at("ranks"))
      p.ranks.push_back({r.at("rank"), r.at("slot"), r.at("local"), r.at("shard_group"),
                         r.at("replica_group"), r.at("gpu"), r.at("nic"), r.at("numa"), r.at("rail")});
    p.leaders = j.at("leaders").get<std::vector<int>>();
    const auto& m = j.at("memory_bytes");
    const auto& state = m.at("state");
    p.memory.state = {state.at("parameters"), state.at("copies"), state.at("optimizer"),
                      state.at("accumulators"), state.at("frozen")};
    p.memory.gathered = m.at("gathered"), p.memory.gradients = m.at("gradients"),
    p.memory.activations = m.at("activations_estimate");
    p.memory.attention = m.value("attention", std::int64_t{0});
    p.memory.reserved = m.at("reserved"), p.memory.offloaded = m.at("offloaded"),
    p.memory.capacity = m.at("capacity");
    const auto& c = j.at("checkpoint");
    p.checkpoint_bytes = c.at("bytes"), p.checkpoint_every = c.at("every"),
    p.checkpoint_floor_s = c.at("floor_s");
    const auto& v = j.at("survives");
    p.survival = {
        v.at("nodes_lost"), {}, v.at("hours_between_losses"), v.at("says").get<std::vector<std::string>>()};
    for (const auto& loss : v.at("losses"))
      p.survival.losses.push_back({loss.at("loss"), loss.at("level"), loss.at("steps")});
    const auto& lack = j.at("when_short");
    p.shrinking = {p.active,     lack.at("nodes_together"),    p.ranks_per_node,
                   p.group_size, lack.value("parts", p.lanes), lack.at("steps")};
    p.when_short = lack.at("says").get<std::vector<std::string>>();
    const auto& local = j.at("local_level");
    p.local = {local.at("folder"), local.at("every"), local.at("partner_every"), local.at("node_bytes")};
    const auto& h = j.at("node_memory_bytes");
    p.host = {h.at("state"), {}, h.at("capacity"), h.at("shm_capacity")};
    for (const auto& part : h.at("parts"))
      p.host.parts.push_back({part.at("name"), part.at("bytes"), part.at("in_shm"), part.at("bound")});
    p.environment = j.at("environment").get<std::vector<std::string>>();
    p.warnings = j.at("warnings").get<std::vector<std::string>>();
    const bool whole = p.active > 0 && p.group_size > 0 && p.nodes.size() == as_size(p.active + p.spares) &&
                       p.ranks.size() == as_size(p.world()) && p.leaders.size() == p.nodes.size();
    if (!whole)
      throw Error(Exit::runtime, "the plan contradicts itself",
                  "its counts of nodes, ranks and leaders do not agree");
    return p;
  } catch (const json::exception& e) {
    throw Error(Exit::runtime, "the plan cannot be read", e.what());
  }
}

}  // namespace holdfast::launcher
