// What is seen of production's leaders from outside, and the invariants that must hold for it.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "checkpoint/index/catalog.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {

using namespace control;
using namespace launcher;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {
int number_of(const fs::path& file) {
  const std::string name = file.filename();
  int number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  return number;
}

/// The step of a committed checkpoint; nothing for any other path.
std::optional<std::int64_t> step_of(const fs::path& path, const RunDir& run) {
  if (path.parent_path() != run.checkpoints()) return std::nullopt;
  const auto name = checkpoint::parse_name(path.filename().string());
  return name.kind == checkpoint::Name::Kind::committed ? std::optional(name.step) : std::nullopt;
}

/// The name of the message that a line is.
std::string_view message_in(std::string_view line) {
  constexpr std::string_view key = R"("m":")";
  const auto at = line.find(key);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + key.size());
  return line.substr(0, line.find('"'));
}
}  // namespace

// --- calls to storage ---

/// It would stand as long as storage hangs, and the ranks of its node with it.
void World::own_thread_asks(const char* path) {
  const Aside aside;
  expect(false, fmt::format("an agent's own thread never asks shared storage ({})",
                            fs::path(path).lexically_relative(storage.run.path).string()));
}

void World::lies_in_memory(int fd, bool so) {
  if (so)
    in_memory_.insert(fd);
  else
    in_memory_.erase(fd);
}

void World::opened(Work& work, int fd, const char* path, int flags) {
  logs_.erase(fd);
  const Aside aside;
  const fs::path file = path;
  const bool of_log = file == storage.run.events() || file.parent_path() == storage.run.events();
  if ((flags & O_ACCMODE) == O_RDONLY) {
    if (file == storage.run.events())
      asked_[work.process->node].listed.lost = storage.replay().lost;
    else if (of_log)
      has_read(work);
    return;
  }
  if (file.parent_path() == storage.run.terms()) {
    storage.terms_changed();
    if ((flags & O_EXCL) != 0 && file.extension().empty()) term_taken(number_of(file), work.process->node);
  }
  if (of_log) storage.events_changed();
  if ((flags & O_APPEND) != 0 && of_log) logs_[fd] = {number_of(file), ""};
}

void World::has_read(Work& work) {
  const Aside aside;
  asked_[work.process->node].read.lost = storage.replay().lost;
}

void World::written(int fd, std::string_view text) {
  const auto log = logs_.find(fd);
  if (log == logs_.end()) return;
  log->second.unsynced += text;
  storage.events_changed();
}

void World::cut_off(int fd) {
  const auto log = logs_.find(fd);
  if (log == logs_.end()) return;
  log->second.unsynced.clear();
  storage.events_changed();
}

void World::synced(Work& work, int fd) {
  const auto log = logs_.find(fd);
  if (log == logs_.end()) return;
  const Aside aside;
  const std::string text = std::exchange(log->second.unsynced, "");
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    recorded(work, log->second.term, entry_from_json(json::parse(text.substr(begin, end - begin))));
}

void World::renamed(Work& work, const fs::path& from, const fs::path& to) {
  const Aside aside;
  if (to == storage.run.result()) result_written(work);
  if (to.parent_path() == storage.run.terms()) {
    storage.terms_changed();
    say(fmt::format("term {} is renounced", number_of(to)));
  }
  if (const auto step = step_of(to, storage.run)) committed(work, *step);
  if (const auto step = step_of(from, storage.run)) removed(*step);
}

// --- lines ---

void World::sent(Connection& connection, int end, const std::string& line) {
  const ProcessPtr& process = connection.ends[end].process;
  const auto name = message_in(line);
  std::string why;
  if (end == 1) {
    if (name != "beat") return;
    expect(connection.term >= followed[process->node], "an agent follows no leader of a lower term");
    followed[process->node] = connection.term;
    return;
  }
  if (name == "start_ranks") {
    launched(std::get<StartRanks>(*decode(line, why)));
  } else if (name == "clear") {
    const auto clear = std::get<Clear>(*decode(line, why));
    if (!cleared_.insert({clear.attempt, clear.term}).second) return;
    const RunState& log = storage.replay();
    expect(std::any_of(log.attempts.begin(), log.attempts.end(),
                       [&](const auto& attempt) { return attempt.number == clear.attempt; }),
           fmt::format("attempt {} is in the valid event log when older ones are cleared", clear.attempt));
  } else if (name == "hello") {
    const auto hello = *decode<Hello>(line, why);
    if (hello.role == Hello::Role::leader) connection.term = hello.term;
    if (hello.role != Hello::Role::candidate) return;
    Asked& asked = asked_[process->node];
    const bool other = std::exchange(asked.term, hello.term) != hello.term;
    for (Votes* votes : {&asked.listed, &asked.read}) {
      if (other) *votes = {std::move(votes->lost), {}, false};
      if (votes->lost.size() >= roster.nodes.size()) votes->won = true;  // a new job: nobody is left to ask
    }
  }
}

void World::heard(const ProcessPtr& process, int from, const std::string& line) {
  const auto name = message_in(line);
  std::string why;
  if (name == "answer") {
    const bool grant = decode<Answer>(line, why)->grant;
    for (Votes* votes : {&asked_[process->node].listed, &asked_[process->node].read})
      answered(*votes, from, grant);
    return;
  }
  if (name == "beat") terms_[process->term].beats[from].push_back(timeline.now);
  if (name == "cleared")
    terms_[process->term].cleared[from].emplace_back(std::get<Cleared>(*decode(line, why)).attempt,
                                                     timeline.now);
  const auto* agent = live_agent(process->node);
  if (agent && agent->leading())
    ++coverage.pairs[{name_of(agent->leading()->supervisor().stage()), std::string(name)}];
}

// --- invariants ---

/// A denial ends an election, but for one that is won already.
void World::answered(Votes& votes, int node, bool grant) {
  if (votes.lost.contains(name(node)) || votes.won) return;
  if (!grant) return votes.granted.clear();
  votes.granted.insert(node);
  votes.won = 2 * votes.granted.size() >= roster.nodes.size() - votes.lost.size();
}

void World::term_taken(int term, int n) {
  say(fmt::format("{} takes term {}", name(n), term));
  expect(asked_[n].term == term && asked_[n].won(), "a leader has the votes of half of the agents");
}

void World::recorded(Work& work, int term, const LogEntry& entry) {
  say(fmt::format("term {}: {}", term, line_of(entry.event)));
  Term& here = terms_[term];
  if (std::holds_alternative<events::LeaderElected>(entry.event)) {
    work.process->term = work.term = term;
    here.state = storage.replay();
    here.out = here.state.lost;
    here.unix_offset = unix_now(work.process->node) - timeline.now;
    return;
  }
  const auto* doubt = std::get_if<events::SilentCorruption>(&entry.event);
  if (doubt && storage.highest() == term) doubted_.emplace_back(doubt->trusted_step, doubt->step);
  check_decision(here, entry);
  if (const auto* lost = std::get_if<events::NodeLost>(&entry.event)) here.out.insert(lost->node);
  if (const auto* evicted = std::get_if<events::NodeEvicted>(&entry.event)) here.out.insert(evicted->node);
  if (const auto* returned = std::get_if<events::NodeReturned>(&entry.event)) here.out.erase(returned->node);
  const int spent = here.state.restarts;
  apply(here.state, entry);
  if (const auto* ended = std::get_if<events::AttemptEnded>(&entry.event))
    expect(here.state.restarts <= spent || ended->kind == "program",
           "only an end that is put down to the program spends the program's count");
  if (!std::holds_alternative<events::AttemptAdopted>(entry.event) &&
      !std::holds_alternative<events::AttemptPlanned>(entry.event))
    return;
  for (const auto& node : here.state.attempts.back().placement)
    expect(!here.state.lost.contains(node), node + " is not both lost and in a slot");
}

/// The leader has heard what a decision requires.
void World::check_decision(const Term& term, const LogEntry& entry) const {
  const double at = entry.envelope.unix - term.unix_offset, slack = 2e-3;
  const auto heard = [&](int n, double since) {
    const auto beats = term.beats.find(n);
    if (beats == term.beats.end()) return false;
    return std::any_of(beats->second.begin(), beats->second.end(),
                       [&](double beat) { return beat >= since - slack && beat <= at + slack; });
  };
  if (const auto* lost = std::get_if<events::NodeLost>(&entry.event)) {
    int voters = 0, reached = 0;
    for (int n = 0; n < node_count(); ++n) {
      if (term.out.contains(name(n)) && name(n) != lost->node) continue;
      ++voters;
      reached += heard(n, at - 1e-3 * config.supervise.node_silence_ms);
    }
    expect(2 * reached >= voters, "a leader that reaches fewer than half declares no node lost");
    if (lost->evidence.find("could not end its old ranks") == std::string::npos) return;
    const AttemptRecord& starts = term.state.attempts.back();
    const double since = at - config.supervise.clear_s;
    int uncleared = 0;
    for (const auto& node : starts.placement) {
      const auto told = term.cleared.find(roster.node_called(node));
      uncleared += told == term.cleared.end() || std::ranges::none_of(told->second, [&](const auto& cleared) {
                     return cleared.first >= starts.number && cleared.second <= since + slack;
                   });
    }
    expect(2 * uncleared < static_cast<int>(starts.placement.size()),
           "a node is lost for its old ranks only when most others had ended theirs for long");
  } else if (const auto* promoted = std::get_if<events::SparePromoted>(&entry.event)) {
    expect(heard(roster.node_called(promoted->to), 0), "a spare that was never heard of gets no slot");
  }
}

void World::launched(const StartRanks& order) {
  const AttemptKey key{order.attempt, order.term};
  for (const auto& k : launched_)
    expect(k.number != key.number || k == key, fmt::format("attempt {} is launched once", order.attempt));
  if (!launched_.insert(key).second) return;
  const RunState& state = terms_[order.term].state;
  if (order.from.trusted_step < 0) durable_before_[key] = state.durable_step;
  expect(std::any_of(state.attempts.begin(), state.attempts.end(),
                     [&](const auto& attempt) { return attempt.number == order.attempt; }),
         fmt::format("attempt {} is recorded before it is launched", order.attempt));
  expect(std::set(order.nodes.begin(), order.nodes.end()).size() == order.nodes.size(),
         "one slot for a node");
  for (const auto& node : order.nodes)
    expect(!state.lost.contains(node), node + " is not lost when ranks are started on it");
}

void World::committed(const Work& work, std::int64_t step) {
  ++coverage.commits;
  coverage.voids += storage.highest() != work.term;
  expect(work.led, fmt::format("no commit (of step {}) from a lower term", step));
  const auto folder = checkpoint::committed_path(storage.run.checkpoints(), step);
  const auto condition = checkpoint::condition_of(folder, step);
  if (!condition.manifest) return expect(false, "what is committed is sound: " + condition.why);
  const auto& manifest = *condition.manifest;
  const auto& [term, attempt] = manifest.generation;
  say(fmt::format("step {} of attempt {} is committed by term {}", step, attempt, work.term));
  const std::uint64_t digest = manifest.digests.front();
  for (const auto& shard : manifest.shards)
    expect(files::read_text(folder / shard.file).starts_with(shard_text(digest, term, attempt)),
           fmt::format("step {}: the commit is of attempt {} only", step, attempt));
  expect(corrupted || digest == digest_after(step),
         fmt::format("step {}: the commit has the right digest", step));
  ever_committed_.insert(step);
}

void World::removed(std::int64_t step) {
  say(fmt::format("checkpoint {} is removed", step));
  const auto left = checkpoint::committed_steps(storage.run.checkpoints());
  expect(!left.empty() && left.front() > step, "retention keeps the newest checkpoint");
}

void World::result_written(const Work& work) {
  result_there_ = true;
  const json result = *storage.result();
  say(fmt::format("term {} writes the result: {}", work.term, result["status"].dump()));
  coverage.voids += storage.highest() != work.term;
  const RunState& log = storage.replay();
  expect(log.outcome && log.outcome->exit_code == result["exit_code"],
         "the result is that of the valid event log");
}

void World::check_leader(const Leader& leader) {
  if (!leader.settled() || storage.highest() != leader.term()) return;
  const RunState& log = storage.replay();
  const RunState& mind = leader.supervisor().state();
  const auto without_times = [](json result) {  // it is not told that storage has returned
    for (const char* key : {"time_s", "wall_s", "goodput", "goodput_of_nodes"}) result.erase(key);
    return result;
  };
  expect(without_times(result_of(log)) == without_times(result_of(mind)) && log.lost == mind.lost &&
             log.suspects == mind.suspects && log.durable_step == mind.durable_step &&
             log.commit_outcomes == mind.commit_outcomes && log.setbacks == mind.setbacks &&
             log.pace == mind.pace,
         "the state of a leader is that of its event log");
}

void World::agent_is_gone(const AgentProcess& agent) {
  const Aside aside;
  if (const auto* leader = agent.leading()) check_leader(*leader);
}

void World::rank_starts(const Rank& rank) {
  for (const auto& other : node(rank.node).ranks()) {
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
  expect(level == "local" || !durable_before_.contains(key) || step >= durable_before_[key],
         fmt::format("attempt {} does not start below a durable step", key.number));
  if (digest != digest_after(step)) ++coverage.levels["damaged, and nobody knows yet"];
  for (const auto& [first, last] : doubted_)
    expect(digest == digest_after(step) || step <= first || step > last,
           fmt::format("attempt {} starts from state of step {} that is not in doubt", key.number, step));
}

void World::agent_left() {
  expect(result_there_, "the result is written before any agent is ended");
  job_is_ended();
}

void World::job_is_ended() {
  if (std::exchange(ending_, true)) return;
  timeline.after(5, [this, allocation = allocation_] {
    if (allocation != allocation_) return;
    for (auto& n : nodes) n->power_off();
  });
}

void World::check_end() {
  const RunState& state = storage.replay();
  const json result = *storage.result();
  const int code = result["exit_code"];
  expect(state.outcome && state.outcome->exit_code == code, "the event log ends with the result");
  expect(only_ != Only::storage_hangs || (code == 0 && state.lost.empty() && launched_.size() == 1),
         "storage that hangs costs no attempt and no node");
  double spent = 0;
  for (const auto& [use, seconds] : result["time_s"].items()) {
    expect(seconds.get<double>() >= -1e-5,
           fmt::format("no time was spent less than not at all ({}: {} s)", use, seconds.dump()));
    spent += seconds.get<double>();
  }
  const double wall = result["wall_s"];
  expect(std::abs(spent - wall) <= 1e-5 + 1e-6 * wall, "every second of the run has one use");
  const auto events = read_events(storage.run);
  const bool one_clock = std::all_of(clock_off.begin(), clock_off.end(), [](double off) { return off == 0; });
  const double took = events.back().envelope.unix - events.front().envelope.unix,
               counted = state.time.total();
  expect(!one_clock || std::abs(counted - took) <= 1e-3 + 0.01 * took,
         fmt::format("the time that is accounted for ({} s) is that from the first event to the last ({} s)",
                     counted, took));
  bool not_started = false;
  std::int64_t furthest = -1;
  int own_ends = 0;  // of the program, since an attempt came further than all before it
  for (const auto& entry : events) {
    if (const auto* ended = std::get_if<events::AttemptEnded>(&entry.event)) {
      not_started = ended->cause == "ranks did not start";
      if (ended->step > std::exchange(furthest, std::max(furthest, ended->step))) own_ends = 0;
      own_ends += own_failures_.contains(ended->attempt) ? 1 : 0;
    }
    if (const auto* durable = std::get_if<events::CheckpointDurable>(&entry.event))
      expect(ever_committed_.contains(durable->step), "a checkpoint recorded as durable is durable on disk");
    coverage.adopted += std::holds_alternative<events::AttemptAdopted>(entry.event);
  }
  expect(!not_started || code != static_cast<int>(Exit::no_requeue) || result["status"] == "stopped",
         "failed starts do not end the run finally");
  expect(result["status"] != "failed" || code == static_cast<int>(Exit::out_of_spares) ||
             own_ends >= config.supervise.max_same_step,
         "the run fails for good only by what its program does");
  if (code == 0 && result["status"] == "done") {
    expect(result["final_step"] == training->settings().steps, "a run that is done has done all its steps");
    expect(result["state_digest"] == hex(digest_after(training->settings().steps)),
           "the final state is that of a run without faults");
  }
}

}  // namespace holdfast::sim
