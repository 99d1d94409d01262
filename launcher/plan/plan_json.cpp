// plan.json and `holdfast plan --json`: the plan as data.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "launcher/plan/plan.hpp"
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

/// Null where nothing is foreseen, but for `missing`; what is of the whole run also while its steps are not
/// known.
json forecast_to_json(const Forecast& f) {
  json out = {{"missing", f.missing}};
  const auto set_where = [&](bool known, const char* name, auto value) {
    out[name] = known ? json(value()) : json(nullptr);
  };
  const auto set = [&](const char* name, auto value) { set_where(f.known(), name, value); };
  const auto set_of_run = [&](const char* name, auto value) {
    set_where(f.known() && f.steps > 0, name, value);
  };
  set("gpu", [&] { return f.gpu; });
  set("step_s", [&] {
    return json{{"typical", f.step.typical}, {"fast", f.step.fast}, {"slow", f.step.slow}};
  });
  set("parts_s", [&] {
    json parts = json::array();
    for (const NamedPart& part : step_parts)
      parts.push_back({{"name", part.name}, {"seconds", f.parts.*part.seconds}});
    return parts;
  });
  set("tokens_s_gpu", [&] { return f.tokens_s_gpu(f.step.typical); });
  set("tokens_s", [&] { return f.tokens_s_gpu(f.step.typical) * f.world; });
  set("mfu_causal", [&] { return f.mfu(f.flops_causal); });
  set("mfu_palm", [&] { return f.mfu(f.flops_palm); });
  set_of_run("hours", [&] {
    return json{
        {"typical", f.hours(f.step.typical)}, {"fast", f.hours(f.step.fast)}, {"slow", f.hours(f.step.slow)}};
  });
  set_of_run("gpu_hours", [&] { return f.gpu_hours(); });
  set_of_run("kwh_gpus", [&] { return f.kwh_of_gpus(); });
  set_of_run("kwh_nodes", [&] { return f.kwh_of_nodes(); });
  return out;
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
      {"steps", p.steps},
      {"samples_of_epoch", p.samples_of_epoch},
      {"nodes", std::move(nodes)},
      {"ranks", std::move(ranks)},
      {"shard_groups", groups(p.replicas(), p.world(), [&](int g) { return p.shard_group(g); })},
      {"replica_groups", groups(p.group_size, p.world(), [&](int place) { return p.replica_group(place); })},
      {"leaders", p.leaders},
      {"forecast", forecast_to_json(p.forecast)},
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

}  // namespace holdfast::launcher
