#include "tests/sim/world.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast::sim {

using namespace control;
using namespace launcher;
using nlohmann::json;

World::World(std::uint64_t seed, Bug b, Coverage& c, bool tracing)
    : random(seed),
      slots(1 + random.below(4)),
      spares(random.below(8) == 0 ? 0 : 1 + random.below(3)),
      network(timeline, random, slots + spares),
      storage(slots + spares),
      bug(b),
      coverage(c),
      tracing_(tracing) {
  set_up();
}

/// Events that are still queued own leaders, whose destructors read the storage.
World::~World() {
  gone_ = true;
  nodes.clear();
  timeline = Timeline();
}

void World::set_up() {
  const int count = slots + spares;
  timeline.now = 1000;
  controller.assign(count, true);
  roster.job = "7.0";
  roster.ranks_per_node = 1 + random.below(2);
  for (int n = 0; n < count; ++n)
    roster.nodes.push_back({fmt::format("n{}", n), "", 0, random.below(2) ? "A" : "B"});
  for (int n = 0; n < slots; ++n) roster.first_placement.push_back(n);
  for (int n = count - 1; n >= 0; --n) roster.candidates.push_back(n);
  roster.batch_host = count - 1;
  limits.heartbeat_ms = 200;
  limits.node_silence_ms = limits.leader_silence_ms = 1000 + 500 * random.below(3);
  limits.start_s = 5;
  limits.step_s = 8;
  limits.max_restarts = 40;
  limits.check_spares_s = 5;
  shrinks = random.chance(0.4);
  if (shrinks)
    limits.min_nodes = 1,
    limits.when_short = random.chance(0.5) ? config::WhenShort::shrink : config::WhenShort::automatic;
  else if (random.chance(0.3))
    limits.when_short = config::WhenShort::requeue;
  Training::Settings settings;
  settings.steps = 10 + random.below(30);
  settings.checkpoint_every = 2 + random.below(6);
  settings.step_s = random.between(0.2, 0.8);
  training = std::make_unique<Training>(
      timeline, random, network, storage, settings,
      Training::Hooks{[this](int n) -> Node& { return node(n); }, [this](const Rank& r) { rank_starts(r); },
                      [this](AttemptKey k, std::int64_t step, std::uint64_t digest,
                             const std::string& level) { restored(k, step, digest, level); },
                      [this](const std::string& text) { say(text); }});
  for (int n = 0; n < count; ++n) nodes.push_back(std::make_unique<Node>(*this, n));
  network.listener = [this](int n) { return node(n).agent ? node(n).agent->process : nullptr; };
  network.accept = [this](int n, const ConnectionPtr& connection) { node(n).agent->accept(connection); };
  for (int n = 0; n < count; ++n)
    timeline.after(random.between(0, 1.5), [this, n] { node(n).start_agent(); });
}

Supervisor World::supervisor(int term, RunState state) const {
  RunFacts facts;
  facts.shrinking.nodes = slots;
  facts.shrinking.together = shrinks ? 1 : 0;
  facts.shrinking.ranks_per_node = facts.shrinking.group = roster.ranks_per_node;
  facts.shrinking.parts = slots;
  facts.shrinking.steps = training->settings().steps;
  return {roster, limits, drain_s, term, std::move(state), timeline.now, timeline.now, facts};
}

void World::say(const std::string& text) {
  if (tracing_) trace_.push_back(fmt::format("{:9.3f} {}", timeline.now - 1000, text));
}
std::string World::trace() const {
  std::string out;
  for (const auto& line : trace_) out += line + "\n";
  return out;
}

void World::expect(bool holds, const std::string& what) {
  if (!holds && broken_.empty()) broken_ = what;
}

void World::covered(Stage stage, const char* event) { ++coverage.pairs[{name_of(stage), event}]; }

void World::when_storage_answers(const ProcessPtr& process, std::function<void()> what) {
  const double wait = storage.takes(process->node, timeline.now);
  if (wait == 0) return what();
  timeline.after(wait, [process, what = std::move(what)] { run(process, what); });
}

void World::only_let_storage_hang() {
  only_hangs_ = true;
  limits.step_s = 200;  // a rank that waits for storage to restore is not hung
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
  if (!storage.result) return false;
  for (const auto& n : nodes)
    if (n->powered && (!n->agent || n->agent->process->alive)) return false;
  return true;
}

void World::play() {
  const double trouble_s = random.between(3, 30);
  for (int allocation = 0;; ++allocation) {
    const double end = timeline.now + (allocation == 0 ? trouble_s : random.below(2) * 8.0);
    while (timeline.now < end && !over()) {
      const double next = timeline.now + random.between(0.05, 2);
      timeline.at(next, [] {});
      run_until(next + 1e-9);
      if (timeline.now < end && !over()) fault();
    }
    mend();
    run_until(timeline.now + 500);
    if (!over()) throw Broken{"after all is mended, the run comes to a stated end within 500 s"};
    const int code = storage.result->json["exit_code"];
    ++coverage.exits[code];
    check_end();
    if (!broken_.empty()) throw Broken{broken_};
    if (code != static_cast<int>(Exit::transient) || allocation == 2) break;
    requeue();
  }
  coverage.terms += static_cast<std::int64_t>(storage.terms.size());
  coverage.attempts += static_cast<std::int64_t>(launched_.size());
}

void World::requeue() {
  ++coverage.requeues;
  ++allocation_;
  say("requeued");
  ending_ = false;
  storage.result.reset();
  roster.job = fmt::format("7.{}", allocation_);
  for (auto& n : nodes) {
    n->power_off();
    n->agent.reset();
    n->power_on();
    timeline.after(random.between(0, 1.5), [&n = *n] { n.start_agent(); });
  }
}

Agent* World::live_agent(int n) {
  auto& agent = node(n).agent;
  return agent && agent->process->alive ? agent.get() : nullptr;
}
Leader* World::live_leader() {
  for (int n = node_count() - 1; n >= 0; --n)
    if (auto* agent = live_agent(n); agent && agent->leading && agent->leading->term() == storage.highest())
      return agent->leading.get();
  return nullptr;
}

// --- invariants ---

void World::term_taken(int term, int n) {
  say(fmt::format("{} takes term {}", name(n), term));
  expect(term == storage.highest() || storage.highest() > term, "terms are counted");
}

void World::rank_starts(const Rank& rank) {
  for (const auto& other : node(rank.node).ranks) {
    if (!other->process->alive) continue;
    expect(other->attempt.number >= rank.attempt.number,
           fmt::format("no older rank lives on {} when rank {} of attempt {} starts there", name(rank.node),
                       rank.rank, rank.attempt.number));
    expect(other->attempt.number != rank.attempt.number || other->attempt == rank.attempt,
           fmt::format("attempt {} belongs to one term only", rank.attempt.number));
    expect(other->attempt != rank.attempt || other->rank != rank.rank,
           fmt::format("rank {} of attempt {} starts once", rank.rank, rank.attempt.number));
  }
}

void World::restored(AttemptKey key, std::int64_t step, std::uint64_t digest, const std::string& level) {
  say(fmt::format("attempt {} of term {} restores step {} ({})", key.number, key.term, step, level));
  ++coverage.levels[level];
  if (digest != digest_after(step)) ++coverage.levels["damaged, and nobody knows yet"];
  for (const auto& [first, last] : doubted_)
    expect(digest == digest_after(step) || step <= first || step > last,
           fmt::format("attempt {} starts from state of step {} that is not in doubt", key.number, step));
}

void World::launched(const Launch& what, int term, const RunState& state) {
  const AttemptKey key{what.attempt, term};
  for (const auto& k : launched_)
    expect(k.number != key.number, fmt::format("attempt {} is launched once", what.attempt));
  launched_.insert(key);
  bool planned = false;
  for (const auto& entry : storage.journals[term])
    if (const auto* plan = std::get_if<events::AttemptPlanned>(&entry.event))
      planned = planned || plan->attempt == what.attempt;
  expect(planned, fmt::format("attempt {} is recorded before it is launched", what.attempt));
  expect(std::set(what.placement.begin(), what.placement.end()).size() == what.placement.size(),
         "one slot for a node");
  if (state.attempt_live() && state.attempts.back().number == what.attempt)
    for (const int n : what.placement)
      expect(!state.lost.contains(name(n)), name(n) + " is not lost when ranks are started on it");
}

void World::commit_begins(int term, int attempt) {
  expect(storage.highest() == term, fmt::format("no commit (of attempt {}) from a lower term", attempt));
}

void World::committed(int term, AttemptKey key, std::int64_t step, const std::string& payload) {
  say(fmt::format("step {} of attempt {} is committed by term {}", step, key.number, term));
  ++coverage.commits;
  coverage.voids += storage.highest() != term;
  const std::uint64_t digest = std::stoull(payload, nullptr, 16);
  expect(payload == fmt::format("{} {} {}", hex(digest), key.number, key.term),
         fmt::format("step {}: the commit is of attempt {} only ({})", step, key.number, payload));
  expect(corrupted || digest == digest_after(step),
         fmt::format("step {}: the commit has the right digest", step));
  ever_committed_.insert(step);
  storage.checkpoints[step] = {key.term, key.number, digest};
}

void World::result_written(int term, const json& result) {
  say(fmt::format("term {} writes the result: {}", term, result["status"].dump()));
  coverage.voids += storage.highest() != term;
  const RunState log = storage.replay();
  expect(log.outcome && log.outcome->exit_code == result["exit_code"],
         "the result is that of the valid event log");
  storage.result = SharedStorage::Result{term, result};
}

void World::leader_is_gone(const Leader& leader) {
  if (gone_ || !leader.settled() || storage.highest() != leader.term()) return;
  const RunState log = storage.replay();
  const RunState& mind = leader.supervisor().state();
  expect(result_of(log) == result_of(mind) && log.lost == mind.lost && log.suspects == mind.suspects &&
             log.durable_step == mind.durable_step && log.commit_outcomes == mind.commit_outcomes &&
             log.setbacks == mind.setbacks && log.pace == mind.pace,
         "the state of a leader is that of its event log");
}

void World::agent_left() {
  expect(storage.result.has_value(), "the result is written before any agent is ended");
  if (std::exchange(ending_, true)) return;
  timeline.after(5, [this, allocation = allocation_] {
    if (allocation != allocation_) return;
    for (auto& n : nodes) n->power_off();
  });
}

void World::check_end() {
  const RunState state = storage.replay();
  const json& result = storage.result->json;
  const int code = result["exit_code"];
  expect(state.outcome && state.outcome->exit_code == code, "the event log ends with the result");
  expect(!only_hangs_ || (code == 0 && state.lost.empty() && launched_.size() == 1),
         "storage that hangs costs no attempt and no node");
  double spent = 0;
  for (const auto& [use, seconds] : result["time_s"].items()) spent += seconds.get<double>();
  const double wall = result["wall_s"];
  expect(std::abs(spent - wall) <= 1e-6 * wall, "every second of the run has one use");
  bool not_started = false;
  for (const auto& entry : storage.events()) {
    if (const auto* ended = std::get_if<events::AttemptEnded>(&entry.event))
      not_started = ended->cause == "ranks did not start";
    if (const auto* durable = std::get_if<events::CheckpointDurable>(&entry.event))
      expect(ever_committed_.contains(durable->step), "a checkpoint recorded as durable is durable on disk");
    coverage.adopted += std::holds_alternative<events::AttemptAdopted>(entry.event);
  }
  expect(!not_started || code != static_cast<int>(Exit::no_requeue) || result["status"] == "stopped",
         "failed starts do not end the run finally");
  if (code == 0 && result["status"] == "done") {
    expect(result["final_step"] == training->settings().steps, "a run that is done has done all its steps");
    expect(result["state_digest"] == hex(digest_after(training->settings().steps)),
           "the final state is that of a run without faults");
  }
}

}  // namespace holdfast::sim
