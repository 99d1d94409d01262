#include "tests/sim/world.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/load.hpp"
#include "tests/sim/slurm.hpp"

namespace holdfast::sim {

using namespace control;
using namespace launcher;
using nlohmann::json;

namespace {
/// From it follow bounds of 5 to 20 s for phases that were never seen (first_bounds.hpp).
RankWork planned_work(int patience_s) {
  RankWork work;
  work.restored = work.saved = work.state = 1 << 20;
  work.operations = 1e8;
  work.peers = 4;
  work.patience_s = patience_s;
  return work;
}
}  // namespace

World::World(std::uint64_t seed, Bug b, Coverage& c, bool tracing, const std::optional<Fixed>& fixed)
    : random(seed),
      slots(fixed ? fixed->slots : 1 + random.below(4)),
      spares(fixed                  ? fixed->spares
             : random.below(8) == 0 ? 0
                                    : 1 + random.below(3)),
      network(timeline, random, slots + spares),
      storage(slots + spares),
      slurm(std::make_shared<Slurm>(*this)),
      slurm_s(as_size(slots + spares)),
      clock_off(as_size(slots + spares)),
      followed(as_size(slots + spares)),
      bug(b),
      coverage(c),
      tracing_(tracing) {
  log::start_for([this](std::string_view line) { say("  " + std::string(line)); });
  set_up(fixed);
}

World::~World() {
  gone_ = true;
  for (const auto& work : strands_)
    while (!work->strand->done()) work->strand->go_on();
  nodes.clear();
  timeline = Timeline();
  log::start_for([](std::string_view) {});
}

void World::set_up(const std::optional<Fixed>& fixed) {
  const int count = slots + spares;
  timeline.now = 1000;
  roster.job = "7.0";
  roster.ranks_per_node = fixed ? 1 : 1 + random.below(2);
  for (int n = 0; n < count; ++n)
    roster.nodes.push_back({fmt::format("n{}", n), fmt::format("n{}", n), 1, random.below(2) ? "A" : "B"});
  for (int n = 0; n < slots; ++n) roster.first_placement.push_back(n);
  for (int n = count - 1; n >= 0; --n) roster.candidates.push_back(n);
  roster.batch_host = count - 1;
  Training::Settings settings;
  if (fixed) {
    config.supervise = fixed->limits;
    settings = fixed->training;
  } else {
    set_up_by_chance(settings);
  }
  config.cluster.nodes = slots;
  config.cluster.spares = spares;
  config.cluster.ranks_per_node = config.shard.group = roster.ranks_per_node;
  config.train.steps = settings.steps;
  config.train.global_batch = roster.world();
  config.checkpoint.keep = 1 + random.below(3);
  config.rank.launch = random.chance(0.5) ? "mpi" : "direct";
  files::replace_atomically(storage.run.config(), config::to_toml(config));
  training = std::make_unique<Training>(
      timeline, random, network, storage, settings,
      Training::Hooks{[this](int n) -> Node& { return node(n); },
                      [this](const RankPtr& r, int status) { node(r->node).rank_ends(*r, status); },
                      [this](const Rank& r) { rank_starts(r); },
                      [this](AttemptKey k, std::int64_t step, std::uint64_t digest,
                             const std::string& level) { restored(k, step, digest, level); },
                      [this](const std::string& text) { say(text); }});
  for (int n = 0; n < count; ++n) nodes.push_back(std::make_unique<Node>(*this, n));
  for (int n = 0; n < count; ++n)
    timeline.after(random.between(0, 1.5), [this, n] { node(n).start_agent(); });
}

void World::set_up_by_chance(Training::Settings& settings) {
  auto& limits = config.supervise;
  limits.heartbeat_ms = 200;
  limits.node_silence_ms = limits.leader_silence_ms = 1000 + 500 * random.below(3);
  limits.start_s = 5;
  limits.step_s = 8;
  limits.clear_s = 3;
  if (random.chance(0.2)) limits.infrastructure_s = 12;
  if (random.chance(0.4)) {
    limits.step_s = 60;
    roster.work = planned_work(10);
  }
  limits.max_restarts = 40;
  limits.check_spares_s = 5;
  if (random.chance(0.4))
    limits.min_nodes = 1,
    limits.when_short = random.chance(0.5) ? config::WhenShort::shrink : config::WhenShort::automatic;
  else if (random.chance(0.3))
    limits.when_short = config::WhenShort::requeue;
  settings.steps = 10 + random.below(30);
  settings.checkpoint_every = 2 + random.below(6);
  settings.step_s = random.between(0.2, 0.8);
  config.checkpoint.commit_s = 20;
  config.checkpoint.drain_s = 10;
}

void World::say(const std::string& text) {
  if (tracing_ && !gone_) trace_.push_back(fmt::format("{:9.3f} {}", timeline.now - 1000, text));
}
std::string World::trace() const {
  std::string out;
  for (const auto& line : trace_) out += line + "\n";
  return out;
}

void World::expect(bool holds, const std::string& what) const {
  if (!holds && broken_.empty()) broken_ = what;
}

void World::only_let_storage_hang() {
  only_ = Only::storage_hangs;
  config.supervise.step_s = 200;
  config.supervise.infrastructure_s = 600;  // a decision may wait for storage as long as it hangs
  roster.work = planned_work(60);           // as long as storage hangs at most
}

void World::only_let_ranks_hang() {
  only_ = Only::ranks_hang;
  config.supervise.step_s = 600;
  roster.work = planned_work(60);
}

void World::run_until(double end) {
  while (!timeline.empty() && timeline.next() < end && !over()) {
    timeline.step();
    ++coverage.events;
    if (!broken_.empty()) throw Broken{broken_};
  }
}

/// All agents were told, and all have left.
bool World::over() const {
  if (!result_there_) return false;
  for (const auto& n : nodes)
    if (n->powered && (!n->agent || n->agent->process->alive)) return false;
  return true;
}

void World::play() {
  const double trouble_s = random.between(3, 30);
  for (int allocation = 0;; ++allocation) {
    const double end = timeline.now + (allocation == 0 ? trouble_s : random.below(2) * 8.0);
    in_trouble_ = only_ == Only::nothing;
    while (timeline.now < end && !over()) {
      const double next = timeline.now + random.between(0.05, 2);
      timeline.at(next, [] {});
      run_until(next + 1e-9);
      if (timeline.now < end && !over()) fault();
    }
    mend();
    run_until(timeline.now + 500);
    if (!over()) throw Broken{"after all is mended, the run comes to a stated end within 500 s"};
    const int code = storage.result()->at("exit_code");
    ++coverage.exits[code];
    check_end();
    if (!broken_.empty()) throw Broken{broken_};
    if (code != static_cast<int>(Exit::transient) || allocation == 2) break;
    requeue();
  }
  coverage.terms += storage.terms();
  coverage.attempts += static_cast<std::int64_t>(launched_.size());
}

void World::requeue(double queue_s) {
  const double start = timeline.now + queue_s;
  timeline.at(start, [] {});
  while (timeline.now < start) timeline.step();
  if (queue_s > 0) heal();
  ++coverage.requeues;
  ++allocation_;
  say("requeued");
  ending_ = false;
  result_there_ = false;
  roster.job = fmt::format("7.{}", allocation_);
  slurm = std::make_shared<Slurm>(*this);
  for (auto& n : nodes) {
    n->power_off();
    n->agent.reset();
    n->power_on();
    timeline.after(random.between(0, 1.5), [&n = *n] { n.start_agent(); });
  }
}

AgentProcess* World::live_agent(int n) {
  auto& agent = node(n).agent;
  return agent && agent->process->alive ? agent.get() : nullptr;
}
const Leader* World::live_leader() {
  for (int n = node_count() - 1; n >= 0; --n)
    if (auto* agent = live_agent(n);
        agent && agent->leading() && agent->leading()->term() == storage.highest())
      return agent->leading();
  return nullptr;
}

void World::tell_agent(int n, Hello::Role role, const Message& what) {
  network.dial(
      std::make_shared<Process>(n), n, "", 2,
      [this, role, what](const ConnectionPtr& c) {
        c->ends[0].message = [this, weak = std::weak_ptr(c)](const std::string&) {
          if (const auto answered = weak.lock()) network.close(answered, 0);
        };
        Hello hello;
        hello.role = role;
        for (const Message& message : {Message(hello), what})
          network.send(c, 0, std::make_shared<const std::string>(encode(message)));
      },
      [] {});
}

// --- work of processes ---

/// Of most work no time passes in the midst.
bool World::takes_time(const ProcessPtr& process) {
  const int n = process->node;
  return storage.takes(n, timeline.now) > 0 || slurm_s[n] > 0 || (interrupt_in_ >= 0 && process->term > 0) ||
         random.chance(process->term > 0 ? 0.2 : 0.05);
}

void World::do_work(const ProcessPtr& process, std::function<void()> what, std::function<void()> done) {
  const auto work = std::make_shared<Work>(*this, process);
  const auto doing = [work = work.get(), what = std::move(what)] {
    const Caller other = std::exchange(caller(), {work, nullptr});
    what();
    caller() = other;
  };
  work->led = storage.highest() == work->term;
  if (!takes_time(process)) return doing(), done();
  work->only_changes_wait = random.chance(0.5);
  work->done = std::move(done);
  work->strand = std::make_unique<Strand>(doing);
  strands_.push_back(work);
  continue_work(work);
}

void World::continue_work(const WorkPtr& work) {
  work->led = work->led || storage.highest() == work->term;
  work->strand->go_on();
  if (!work->strand->done()) return;
  std::erase(strands_, work);
  work->done();
}

void World::pass_time(Work& work, double seconds) {
  if (!work.strand || gone_) return;
  timeline.after(seconds, [this, work = work.shared_from_this()] {
    run(work->process, [this, work] { continue_work(work); });
  });
  work.strand->wait();
}

void World::ask_slurm(std::chrono::milliseconds limit) {
  Work* const work = caller().work;
  if (!work) return;
  const double takes_s = slurm_s[work->process->node], limit_s = 1e-3 * static_cast<double>(limit.count());
  if (takes_s > 0) pass_time(*work, std::min(takes_s, limit_s));
  if (takes_s > limit_s) throw Error(Exit::transient, "slurmctld does not answer");
}

}  // namespace holdfast::sim
