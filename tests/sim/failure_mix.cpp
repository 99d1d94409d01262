// What a published mix of failures would cost a run: the 419 unexpected interruptions of Llama 3's
// pre-training (arXiv 2407.21783, table 5: 54 days, 16,384 GPUs). Each event is played in a world of its own,
// in which production's agents and leaders detect, decide and start again; between the events there is
// arithmetic.
//   failure_mix [SEED [EVENTS]]   EVENTS: so many, chosen by chance, in a share of the 54 days
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "src/base/error.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {
namespace {

using launcher::TimeAccount;
using launcher::TimeUse;

constexpr int uses = static_cast<int>(TimeUse::count_);

/// What an event is in the simulated world.
enum class Play {
  gpu_ends,      ///< an Xid in the kernel's log, and its rank fails
  sign_ends,     ///< another sign of broken hardware, and a rank fails
  program_ends,  ///< a rank fails, and nothing explains it
  node_off,      ///< the node loses power
  node_cut,      ///< nobody reaches the node
  rank_hangs,
  corruption,  ///< a rank computes wrongly
};

struct Cause {
  const char* name;
  int count;
  Play play;
  const char* sign = "";
  int xid = 0;
};
constexpr std::array causes = {
    Cause{"faulty GPU", 148, Play::gpu_ends, "xid", 79},
    Cause{"GPU HBM3 memory", 72, Play::gpu_ends, "xid", 95},
    Cause{"software bug", 54, Play::program_ends},
    Cause{"network switch or cable", 35, Play::node_cut},
    Cause{"host maintenance", 32, Play::node_off},
    Cause{"GPU SRAM memory", 19, Play::gpu_ends, "xid", 140},
    Cause{"GPU system processor", 17, Play::gpu_ends, "xid", 119},
    Cause{"NIC", 7, Play::sign_ends, "nic_failed"},
    Cause{"NCCL watchdog timeouts", 7, Play::rank_hangs},
    Cause{"silent data corruption", 6, Play::corruption},
    Cause{"GPU thermal interface and sensor", 6, Play::gpu_ends, "xid", 79},
    Cause{"SSD", 3, Play::sign_ends, "disk_read_only"},
    Cause{"power supply", 3, Play::node_off},
    Cause{"server chassis", 2, Play::node_off},
    Cause{"IO expansion board", 2, Play::node_off},
    Cause{"dependency", 2, Play::program_ends},
    Cause{"CPU", 2, Play::sign_ends, "machine_check"},
    Cause{"system memory", 2, Play::sign_ends, "machine_check"},
};

struct Parameter {
  const char* name;
  double value;
  const char* unit;
  const char* source;
};
constexpr std::array parameters = {
    Parameter{"days", 54, "d", "arXiv 2407.21783, section 3.3.4"},
    Parameter{"gpus", 16384, "", "the same"},
    Parameter{"nodes", 2048, "", "8 GPUs each, the same"},
    Parameter{"step", 6.2, "s",
              "computed: 6 x 405e9 parameters x 16.8e6 tokens / (16,384 x 400 TFLOP/s), tables 3 and 4"},
    Parameter{"checkpoint_interval", 1200, "s", "assumed"},
    Parameter{"launch", 30, "s",
              "assumed: communicators; MegaScale (NSDI 2024, as recalled): < 30 s on 10,000 GPUs"},
    Parameter{"restore_local", 15, "s", "assumed; from node memory: 0.35 GB a GPU (14 bytes a parameter)"},
    Parameter{"restore_shared", 60, "s", "assumed; 5.7 TB at 2 TB/s (the paper, section 3.3.1) are 3 s"},
    Parameter{"queue", 300, "s", "assumed: from a requeue to the next start of the job"},
    Parameter{"repair", 86400, "s", "assumed: until a node that was lost is back in the cluster"},
    Parameter{"spares", 16, "", "assumed: in the allocation"},
    Parameter{"cluster", 2080, "", "assumed: nodes that the job can get, with those in repair"},
};
constexpr double value_of(std::string_view name) {
  for (const auto& p : parameters)
    if (p.name == name) return p.value;
  throw std::invalid_argument("no such parameter");
}

// The simulated world: eight of the nodes, one rank on each.
constexpr int simulated_slots = 8, simulated_spares = 2, steps_between_saves = 10;

struct Spent {
  std::array<double, uses> s{};
  double& of(TimeUse use) { return s[as_size(static_cast<int>(use))]; }
  double sum() const { return std::accumulate(s.begin(), s.end(), 0.0); }
  void add(const Spent& other) {
    for (int u = 0; u < uses; ++u) s[as_size(u)] += other.s[as_size(u)];
  }
};
Spent spent(const TimeAccount& account) {
  Spent out;
  for (int u = 0; u < uses; ++u) out.s[as_size(u)] = account.of(static_cast<TimeUse>(u));
  return out;
}

/// What one event costs.
struct Window {
  Spent spent;        ///< from just before it until the run saves again
  int nodes_out = 0;  ///< that the job does without from then on
  bool requeued = false;
  bool from_older = false;  ///< the state is that of a checkpoint from before the event
};

class Player {
 public:
  Player(std::uint64_t seed, const Cause& cause, int spares)
      : cause_(cause), world_(seed, Bug::none, coverage_, false, fixed(spares)) {}

  Window play(double queue_s) {
    until("the run trains", [&] { return state().durable_step > 0; });
    const double step_s = value_of("step");
    world_.run_until(world_.timeline.now + world_.random.between(0.5, 0.9 * steps_between_saves) * step_s);
    const auto& before = state();
    const Spent until_now = spent(before.time);
    const double began = before.last_at;
    const std::int64_t saved = before.durable_step;
    const int attempt = before.attempts.back().number;
    happen();
    Window out;
    until("the attempt ends", [&] { return world_.over() || state().attempts.back().number > attempt; });
    until("the run goes on or ends", [&] { return world_.over() || steps_again(attempt); });
    if (world_.over()) {
      if (!state().outcome || state().outcome->exit_code != static_cast<int>(Exit::transient))
        throw std::runtime_error(
            fmt::format("{}: the run ended with {}", cause_.name, world_.storage.result()->dump()));
      out.requeued = true;
      out.nodes_out = static_cast<int>(state().lost.size());
      world_.requeue(queue_s);
      until("the next job trains", [&] { return steps_again(attempt); });
    } else {
      out.nodes_out = static_cast<int>(state().lost.size());
    }
    const auto& restored = state().attempts.back().restored;
    out.from_older = restored && restored->level != "local" && restored->step <= saved;
    const std::int64_t then = state().durable_step;
    until("the run saves again", [&] { return state().durable_step > then; });
    out.spent = spent(state().time);
    for (int u = 0; u < uses; ++u) out.spent.s[as_size(u)] -= until_now.s[as_size(u)];
    const double took_s = state().last_at - began;
    if (std::abs(out.spent.sum() - took_s) > 0.01 * took_s)
      throw std::runtime_error(
          fmt::format("{}: the parts add up to {} s of {} s", cause_.name, out.spent.sum(), took_s));
    return out;
  }

 private:
  static Fixed fixed(int spares) {
    Fixed out;
    out.slots = simulated_slots;
    out.spares = spares;
    out.limits.when_short = config::WhenShort::requeue;
    out.limits.start_s = 120;
    out.training.steps = 1 << 20;
    out.training.checkpoint_every = steps_between_saves;
    out.training.verify_every = steps_between_saves;
    out.training.step_s = value_of("step");
    out.training.launch_s = value_of("launch");
    out.training.restore_local_s = value_of("restore_local");
    out.training.restore_shared_s = value_of("restore_shared");
    return out;
  }
  const launcher::RunState& state() const { return world_.storage.replay(); }
  bool steps_again(int attempt) const {
    const auto& last = state().attempts.back();
    return last.number > attempt && last.first_step_at && !last.ended_at;
  }
  template <class There>
  void until(const char* what, There there) {
    const double limit = world_.timeline.now + 7200;
    while (!there()) {
      if (world_.timeline.now > limit)
        throw std::runtime_error(fmt::format("{}: it is not so within two hours that {}", cause_.name, what));
      if (world_.over() && world_.storage.result())
        throw std::runtime_error(fmt::format("{}: the run has ended with {}, and not yet {}", cause_.name,
                                             world_.storage.result()->at("status").dump(), what));
      const double next = world_.timeline.now + 0.5;
      world_.timeline.at(next, [] {});
      world_.run_until(next + 1e-9);
    }
  }
  void happen() {
    const auto& placement = state().attempts.back().placement;
    const int n = world_.roster.node_called(placement[as_size(world_.random.below(simulated_slots))]);
    Node& node = world_.node(n);
    const RankPtr rank = node.ranks().front();
    switch (cause_.play) {
      case Play::gpu_ends:
      case Play::sign_ends:
        std::ofstream(node.signs()) << nlohmann::json{{"kind", cause_.sign},
                                                      {"rank", rank->rank},
                                                      {"code", cause_.xid},
                                                      {"text", cause_.name}}
                                           .dump()
                                    << "\n";
        [[fallthrough]];
      case Play::program_ends:
        return node.rank_ends(*rank, 1);
      case Play::node_off:
        return node.power_off();
      case Play::node_cut:
        world_.cut(n, true, true);
        world_.storage.mounted[as_size(n)] = false;
        return;
      case Play::rank_hangs:
        rank->hung = true;
        return;
      case Play::corruption:
        world_.corrupted = true;
        return world_.training->corrupt(*rank);
    }
  }

  const Cause& cause_;
  Coverage coverage_;
  World world_;
};

struct Event {
  double at;
  const Cause* cause;
};

struct Result {
  Spent spent;
  int requeues = 0, nodes_out = 0;
  double goodput() { return spent.of(TimeUse::productive) / spent.sum(); }
};

/// The whole time, with `spares` in the allocation.
Result replay(const std::vector<Event>& events, double days_s, int spares, std::uint64_t seed) {
  Result out;
  Random random(seed ^ 0x5eed);
  const int slots = static_cast<int>(value_of("nodes")), cluster = static_cast<int>(value_of("cluster"));
  std::vector<double> in_repair;  // until when
  int left = spares;
  double now = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    now = std::max(now, events[i].at);  // an event in the midst of a recovery happens when the run is back
    std::erase_if(in_repair, [&](double until) { return until <= now; });
    Window window = Player(seed * 1000003 + i, *events[i].cause, std::min(left, simulated_spares))
                        .play(value_of("queue"));
    // The simulated checkpoint is one of those between which the published run would have saved once.
    if (window.from_older) {
      const double between = steps_between_saves * value_of("step");
      const int saves = static_cast<int>(value_of("checkpoint_interval") / between);
      const double redone = between * random.below(saves);
      window.spent.of(TimeUse::redone) += redone;
    }
    out.nodes_out += window.nodes_out;
    left -= window.nodes_out;
    for (int n = 0; n < window.nodes_out; ++n) in_repair.push_back(now + value_of("repair"));
    if (window.requeued) {
      ++out.requeues;
      std::sort(in_repair.begin(), in_repair.end());
      double wait = 0;  // until there are as many nodes as the job must have
      while (cluster - static_cast<int>(in_repair.size()) < slots) {
        wait = in_repair.front() - now;
        in_repair.erase(in_repair.begin());
      }
      window.spent.of(TimeUse::queue) += std::max(0.0, wait - value_of("queue"));
      left = std::min(spares, cluster - static_cast<int>(in_repair.size()) - slots);
    }
    Spent lost = window.spent;
    lost.of(TimeUse::productive) = 0;
    out.spent.add(lost);
    now += window.spent.sum();
  }
  out.spent.of(TimeUse::productive) = std::max(days_s, now) - out.spent.sum();
  return out;
}

int main_with(std::uint64_t seed, int wanted) {
  Random random(seed);
  std::vector<const Cause*> all;
  for (const Cause& cause : causes)
    for (int i = 0; i < cause.count; ++i) all.push_back(&cause);
  const int published = static_cast<int>(all.size());
  for (int i = published - 1; i > 0; --i) std::swap(all[as_size(i)], all[as_size(random.below(i + 1))]);
  if (wanted > 0 && wanted < published) all.resize(as_size(wanted));
  const double days_s = value_of("days") * 86400 * static_cast<double>(all.size()) / published;
  std::vector<Event> events;
  for (const Cause* cause : all) events.push_back({random.between(0, days_s), cause});
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.at < b.at; });

  fmt::print("{} of {} unexpected interruptions in {:.1f} days, seed {}\n", all.size(), published,
             days_s / 86400, seed);
  for (const auto& p : parameters) fmt::print("  {:<20} {:>7} {:<2} {}\n", p.name, p.value, p.unit, p.source);
  fmt::print(
      "Each event concerns one node, and is played in a world of {} nodes with one rank each and up to {}\n"
      "spares: what takes longer on more nodes are the parameters above. Ranks keep their state in node\n"
      "memory after each step. Saves stall nothing, planned interruptions are left out, and `restore` is\n"
      "launch, restore_local or restore_shared, and the first step.\n",
      simulated_slots, simulated_spares);
  nlohmann::json result{{"events", all.size()}, {"seed", seed}, {"simulated_nodes", simulated_slots}};
  const int spares = static_cast<int>(value_of("spares"));
  Result with = replay(events, days_s, spares, seed), without = replay(events, days_s, 0, seed);
  fmt::print("{:<20} {:>15} {:>15}\n", "hours", fmt::format("{} spares", spares), "no spares");
  for (int u = 0; u < uses; ++u)
    fmt::print("  {:<18} {:>15.3f} {:>15.3f}\n", launcher::name_of(static_cast<TimeUse>(u)),
               with.spent.s[as_size(u)] / 3600, without.spent.s[as_size(u)] / 3600);
  fmt::print("  {:<18} {:>15} {:>15}\n", "requeues", with.requeues, without.requeues);
  fmt::print("  {:<18} {:>15} {:>15}\n", "nodes lost", with.nodes_out, without.nodes_out);
  fmt::print("  {:<18} {:>15.4f} {:>15.4f}\n", "goodput", with.goodput(), without.goodput());
  for (auto [name, one] : {std::pair{"with_spares", &with}, std::pair{"without_spares", &without}}) {
    auto& to = result[name];
    to["goodput"] = std::round(1e4 * one->goodput()) / 1e4;
    to["requeues"] = one->requeues;
    to["nodes_lost"] = one->nodes_out;
    for (int u = 0; u < uses; ++u)
      to["hours"][launcher::name_of(static_cast<TimeUse>(u))] =
          std::round(one->spent.s[as_size(u)] / 3.6) / 1000;
  }
  fmt::print("RESULT {}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace holdfast::sim

int main(int argc, char** argv) {
  try {
    return holdfast::sim::main_with(argc > 1 ? std::stoull(argv[1]) : 1, argc > 2 ? std::stoi(argv[2]) : 0);
  } catch (const std::exception& error) {
    fmt::print(stderr, "failure_mix: {}\n", error.what());
    return 1;
  }
}
