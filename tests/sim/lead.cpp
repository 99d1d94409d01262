#include "tests/sim/lead.hpp"

#include <fmt/format.h>

#include "src/base/as_size.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {

using namespace control;
using namespace launcher;

namespace {
constexpr double tick_s = 0.1, dial_limit_s = 2, redial_s = 0.2, lost_redial_s = 1, stuck_batch_s = 2,
                 retry_s = 0.5, patience_s = 120, vote_limit_s = 20, renounce_limit_s = 2, gives_way_s = 4;

Supervisor supervisor_of(World& world, int term, int node) {
  const auto entries = world.storage.events();
  RunState state;
  for (const auto& entry : entries) apply(state, entry);
  LogEntry elected{{}, events::LeaderElected{world.name(node), world.roster.job, 1, last_read(entries)}};
  elected.envelope.term = term;
  elected.envelope.unix = world.timeline.now;
  apply(state, elected);
  world.storage.write(term, std::move(elected));
  return world.supervisor(term, std::move(state));
}
/// Of the event log, before this leader's election is written.
Leader::Before leader_before(const World& world) {
  RunState state;
  const auto entries = world.storage.events();
  for (const auto& entry : entries) apply(state, entry);
  return {world.roster.node_called(state.leader), last_read(entries).term};
}
}  // namespace

Leader::Leader(World& world, const ProcessPtr& process, int term, LeadershipState::Heard heard)
    : world_(world),
      process_(process),
      term_(term),
      before_(leader_before(world)),
      supervisor_(supervisor_of(world, term, process->node)),
      links_(as_size(world.node_count())),
      heard_(links_.size()),
      out_(supervisor_.state().lost) {
  world_.say(fmt::format("{} leads, term {}", world_.name(process->node), term));
  if (before_.node >= 0 && before_.node != process->node && heard.at >= 0 && heard.term == before_.term)
    supervisor_.last_leader_heard(before_.node, heard.at);
  const RunState& state = supervisor_.state();
  ordered_.attempt = supervisor_.attempt();
  ordered_.drain = state.asked_of_ranks();
  ordered_.paused = state.hold_ranks();
  if (state.attempt_live()) {
    const auto& live = state.attempts.back();
    begin(live.term, live.number, static_cast<int>(live.placement.size()) * world_.roster.ranks_per_node,
          state.commit_outcomes);
  }
  const std::weak_ptr<bool> alive = alive_;
  const auto still = [alive] {
    const auto there = alive.lock();
    return there && *there;
  };
  every(world_.timeline, process_, tick_s, 0, [this, still] { return still() && (tick(), still()); });
  every(world_.timeline, process_, 1e-3 * world_.limits.heartbeat_ms, 0.01,
        [this, still] { return still() && (send_all(LeaderBeat{term_}), true); });
}

Leader::~Leader() {
  world_.leader_is_gone(*this);
  *alive_ = false;
  for (auto& link : links_)
    if (link.connection && process_->alive) world_.network.close(link.connection, 0);
}

void Leader::later(double seconds, std::function<void()> what) {
  world_.timeline.after(seconds, [this, what = std::move(what), p = process_, alive = std::weak_ptr(alive_)] {
    run(p, [what, alive] {
      const auto there = alive.lock();
      if (there && *there) what();
    });
  });
}

void Leader::covered(const char* event) { world_.covered(supervisor_.stage(), event); }

void Leader::resign(const std::string& why) {
  if (!std::exchange(*alive_, false)) return;
  world_.say(fmt::format("term {} resigns: {}", term_, why));
  for (auto& link : links_)
    if (link.connection) world_.network.close(link.connection, 0), link.connection.reset();
  world_.timeline.after(0, [&world = world_, node = process_->node, p = process_, mine = this] {
    run(p, [&world, node, p, mine] {
      auto& agent = world.node(node).agent;
      if (!agent || agent->process != p || agent->leading.get() != mine) return;
      agent->leading.reset();
      agent->leadership.resigned(world.timeline.now);
    });
  });
}

// --- links to the agents ---

void Leader::connect(int n) {
  AgentLink& link = links_[n];
  link.dialling = true;
  link.greeted = false;
  const std::weak_ptr<bool> alive = alive_;
  world_.network.dial(
      process_, n, dial_limit_s,
      [this, n, alive](const ConnectionPtr& c) {
        const auto there = alive.lock();
        if (!there || !*there) return;
        AgentLink& mine = links_[n];
        mine.dialling = false;
        mine.connection = c;
        c->ends[0].message = [this, n, alive](const Message& m) {
          const auto lives = alive.lock();
          if (lives && *lives) receive(n, m);
        };
        c->ends[0].closed = [this, n, alive] {
          const auto lives = alive.lock();
          if (lives && *lives) link_lost(n);
        };
        introduce_itself(n);
      },
      [this, n, alive] {
        const auto there = alive.lock();
        if (there && *there) link_lost(n);
      });
}

void Leader::introduce_itself(int n) {
  send(n, Hello{Hello::Role::leader, world_.name(process_->node), term_, 0, -1, 1});
  if (ordered_.attempt > 0) send(n, Clear{term_, ordered_.attempt});
  if (const auto start = ordered_.starts.find(n);
      start != ordered_.starts.end() && supervisor_.stage() == launcher::Stage::starting)
    send(n, start->second);
  if (ordered_.drain && supervisor_.state().asked_of_ranks()) send(n, *ordered_.drain);
  send(n, Pause{ordered_.paused});
  if (ordered_.finish) send(n, Finish{*ordered_.finish});
}

void Leader::link_lost(int n) {
  AgentLink& link = links_[n];
  if (link.greeted) covered("agent gone"), supervisor_.agent_gone(n);
  link.greeted = link.dialling = false;
  link.connection.reset();
  link.next_dial =
      world_.timeline.now + (supervisor_.state().lost.contains(world_.name(n)) ? lost_redial_s : redial_s);
}

void Leader::receive(int n, const Message& message) {
  supervisor_.at(world_.timeline.now);
  if (const auto* m = std::get_if<Beat>(&message)) {
    covered("beat");
    links_[n].greeted = true;
    heard_[n] = world_.timeline.now;
    supervisor_.agent_here(n, *m);
  } else if (const auto* cleared = std::get_if<Cleared>(&message)) {
    covered("cleared");
    supervisor_.cleared(n, cleared->attempt);
  } else if (const auto* started = std::get_if<RankStarted>(&message)) {
    covered("rank started");
    supervisor_.rank_started(n, *started);
  } else if (const auto* exited = std::get_if<RankExited>(&message)) {
    covered("rank exited");
    supervisor_.rank_exited(n, *exited);
  } else if (const auto* failed = std::get_if<RankFailed>(&message)) {
    covered("rank failed");
    supervisor_.rank_failed(n, *failed);
  } else if (const auto* finished = std::get_if<RankFinished>(&message)) {
    covered("rank finished");
    supervisor_.rank_finished(*finished);
  } else if (const auto* restored = std::get_if<RankRestored>(&message)) {
    covered("rank restored");
    supervisor_.rank_restored(*restored);
  } else if (const auto* doubt = std::get_if<RankDoubt>(&message)) {
    covered("doubt");
    supervisor_.rank_doubt(n, *doubt);
  } else if (const auto* health = std::get_if<NodeHealth>(&message)) {
    covered("health");
    supervisor_.node_health(n, *health);
  } else if (const auto* stacks = std::get_if<Stacks>(&message)) {
    covered("stacks");
    supervisor_.stacks(n, *stacks);
  } else if (const auto* drain = std::get_if<Drain>(&message)) {
    covered(drain->stop ? "drain stop" : "drain save");
    supervisor_.drain(*drain);
  } else if (const auto* votes = std::get_if<NodeVotes>(&message)) {
    covered("votes");
    take(n, *votes);
  }
  act();
}

OrderTaken Leader::order(const Order& what) {
  covered("order");
  supervisor_.at(world_.timeline.now);
  const OrderTaken answer = supervisor_.order(what);
  act();
  return answer;
}

void Leader::send(int n, const Message& message) {
  if (const auto& c = links_[n].connection) world_.network.send(c, 0, message);
}

void Leader::send_all(const Message& message) {
  for (int n = 0; n < world_.node_count(); ++n) send(n, message);
}

// --- time and decisions ---

void Leader::tick() {
  const double now = world_.timeline.now;
  for (int n = 0; n < world_.node_count(); ++n) {
    const AgentLink& link = links_[n];
    if (!link.connection && !link.dialling && now >= link.next_dial) connect(n);
  }
  if (!storage_answers_others())
    behind_others_since_.reset();
  else if (!behind_others_since_)
    behind_others_since_ = now;
  else if (now - *behind_others_since_ >= gives_way_s)
    return resign("shared storage answers other nodes");
  if (batch_ && now - batch_->since > stuck_batch_s) return;
  covered("tick");
  supervisor_.at(now);
  supervisor_.tick();
  act();
}

/// It does not answer this node, and at least half of the others that are connected it does.
bool Leader::storage_answers_others() const {
  const auto answers = [&](int n) {
    return world_.storage.reachable(n) && world_.storage.takes(n, world_.timeline.now) == 0;
  };
  if (answers(process_->node)) return false;
  int others = 0, gone = 0;
  for (int n = 0; n < world_.node_count(); ++n)
    if (n != process_->node && links_[n].greeted) {
      ++others;
      if (!answers(n)) ++gone;
    }
  return others > 0 && 2 * gone <= others;
}

void Leader::act(std::function<void()> then) {
  if (over()) return;
  for (auto& action : supervisor_.take_actions()) {
    if (const auto* record = std::get_if<Record>(&action)) check(record->entry.event);
    steps_.emplace_back(std::move(action));
  }
  check_placement();
  if (then) steps_.emplace_back(std::move(then));
  write_next_batch();
}

/// Checks that the leader has heard what a decision requires.
void Leader::check(const Event& event) {
  if (const auto* lost = std::get_if<events::NodeLost>(&event)) {
    int voters = 0, reached = 0;
    for (int n = 0; n < world_.node_count(); ++n) {
      const bool itself = world_.name(n) == lost->node;
      if (out_.contains(world_.name(n)) && !itself) continue;
      ++voters;
      reached += heard_[n] > 0 && world_.timeline.now - heard_[n] <= 1e-3 * world_.limits.node_silence_ms;
    }
    world_.expect(2 * reached >= voters, "a leader that reaches fewer than half declares no node lost");
    out_.insert(lost->node);
  } else if (const auto* promoted = std::get_if<events::SparePromoted>(&event)) {
    const int to = world_.roster.node_called(promoted->to);
    world_.expect(heard_[to] > 0, "a spare that was never heard of gets no slot");
  } else if (const auto* evicted = std::get_if<events::NodeEvicted>(&event)) {
    out_.insert(evicted->node);
  } else if (const auto* returned = std::get_if<events::NodeReturned>(&event)) {
    out_.erase(returned->node);
  }
}

void Leader::check_placement() {
  const auto stage = supervisor_.stage();
  if (stage != Stage::clearing && stage != Stage::starting && stage != Stage::running) return;
  for (const int n : supervisor_.placement())
    world_.expect(!supervisor_.state().lost.contains(world_.name(n)),
                  world_.name(n) + " is not both lost and in a slot");
}

/// Takes the records at the front, and the files that the steps behind them need.
void Leader::write_next_batch() {
  if (batch_ || on_record_ > 0 || over() || steps_.empty()) return;
  Batch batch;
  bool files = false;
  for (; batch.steps < steps_.size(); ++batch.steps) {
    const auto* action = std::get_if<Action>(&steps_[batch.steps]);
    if (!action) continue;
    if (const auto* record = std::get_if<Record>(action)) {
      if (batch.entries.size() < batch.steps) break;
      batch.entries.push_back(record->entry);
    } else if (std::holds_alternative<Launch>(*action) || std::holds_alternative<FinishRun>(*action)) {
      if (std::exchange(files, true)) break;
      if (std::holds_alternative<FinishRun>(*action)) batch.result = result_of(supervisor_.state());
    }
  }
  batch.since = world_.timeline.now;
  batch_ = std::move(batch);
  if (world_.bug == Bug::act_before_record) {
    on_record_ = batch_->steps;
    carry_out();
  }
  later(world_.random.between(0.002, 0.03), [this] { write_batch(); });
}

/// The worker for disk I/O. It checks for a higher term before it writes and again after: only then is it
/// sure that the next leader reads these lines, so that they may be acted upon. It may be stopped or die
/// between any two of these.
void Leader::write_batch() {
  if (!batch_) return;
  auto& storage = world_.storage;
  if (!storage.reachable(process_->node)) {
    if (world_.timeline.now - batch_->since > patience_s) return resign("the run directory has not answered");
    return later(retry_s, [this] { write_batch(); });
  }
  const double hangs = storage.takes(process_->node, world_.timeline.now);
  if (hangs > 0 && world_.random.chance(0.5)) return later(hangs, [this] { write_batch(); });
  if (replaced()) return;
  if (hangs > 0) {
    // The write that hangs happens, even if this leader resigns meanwhile: then its lines are void.
    const std::weak_ptr<bool> alive = alive_;
    return world_.when_storage_answers(process_,
                                       [this, &storage, alive, term = term_, entries = batch_->entries] {
                                         if (const auto there = alive.lock(); there && *there)
                                           return append_batch();
                                         for (const auto& entry : entries) storage.write(term, entry);
                                       });
  }
  if (world_.interrupted(process_)) {
    if (process_->alive) return later(0, [this] { append_batch(); });
    // It died in the write: this many lines are complete, the last one is torn.
    const int lines = world_.random.below(static_cast<int>(batch_->entries.size()) + 1);
    for (int i = 0; i < lines; ++i) storage.write(term_, batch_->entries[i]);
    return;
  }
  append_batch();
}

/// A higher term exists. Its taker may be about to renounce it: until then nothing is acted upon.
bool Leader::replaced() {
  const double now = world_.timeline.now;
  if (world_.storage.highest() <= term_) return batch_->higher_since.reset(), false;
  if (!batch_->higher_since) batch_->higher_since = now;
  if (now - *batch_->higher_since >= renounce_limit_s) return resign("a higher term exists"), true;
  return later(retry_s, [this] { write_batch(); }), true;
}

void Leader::append_batch() {
  for (auto& entry : batch_->entries) {
    world_.say(fmt::format("term {}: {}", term_, line_of(entry.event)));
    const auto* doubt = std::get_if<events::SilentCorruption>(&entry.event);
    if (doubt && world_.storage.highest() == term_) world_.doubted(doubt->trusted_step, doubt->step);
    world_.storage.write(term_, std::move(entry));
  }
  batch_->entries.clear();
  if (world_.bug != Bug::act_unchecked && replaced()) return;
  const auto files = [this] {
    if (batch_->result) world_.result_written(term_, *batch_->result);
    later(world_.random.between(0, 0.005), [this] {
      const std::size_t steps = batch_->steps;
      batch_.reset();
      if (world_.bug != Bug::act_before_record) {
        on_record_ = steps;
        carry_out();
      }
      write_next_batch();
    });
  };
  if (world_.interrupted(process_)) return later(0, files);
  files();
}

void Leader::carry_out() {
  while (on_record_ > 0 && !over()) {
    if (world_.interrupted(process_)) return later(0, [this] { carry_out(), write_next_batch(); });
    --on_record_;
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    if (const auto* action = std::get_if<Action>(&step))
      carry_out(*action);
    else
      std::get<std::function<void()>>(step)();
  }
}

void Leader::carry_out(const Action& action) {
  if (const auto* clear = std::get_if<ClearAll>(&action)) {
    ordered_.attempt = clear->attempt;
    ordered_.starts.clear();
    ordered_.drain.reset();
    begin(term_, clear->attempt, world_.roster.world());
    send_all(Clear{term_, clear->attempt});
    supervisor_.at(world_.timeline.now);
    supervisor_.ordered();
  } else if (const auto* start = std::get_if<Launch>(&action)) {
    launch(*start);
  } else if (const auto* tell = std::get_if<TellRanks>(&action)) {
    ordered_.drain = tell->what;
    send_all(tell->what);
  } else if (const auto* pause = std::get_if<PauseRanks>(&action)) {
    ordered_.paused = pause->on;
    send_all(Pause{pause->on});
  } else if (const auto* dump = std::get_if<DumpRank>(&action)) {
    send(dump->node, DumpStacks{supervisor_.attempt(), dump->rank});
  } else if (const auto* check = std::get_if<CheckNodes>(&action)) {
    for (const int n : check->nodes) send(n, CheckNode{});
  } else if (const auto* finish = std::get_if<FinishRun>(&action)) {
    ordered_.finish = finish->exit_code;
    send_all(Finish{finish->exit_code});
  } else if (const auto* resignation = std::get_if<Resign>(&action)) {
    resign(resignation->why);
  }
}

void Leader::launch(const Launch& what) {
  const int per_node = world_.roster.ranks_per_node,
            size = static_cast<int>(what.placement.size()) * per_node;
  begin(term_, what.attempt, size);
  world_.launched(what, term_, supervisor_.state());
  StartRanks order{term_, what.attempt, 0, per_node, 29500, "", {}, what.trusted_step};
  for (const int n : what.placement) order.nodes.push_back(world_.name(n));
  for (const int n : what.placement) {
    ordered_.starts[n] = order;
    send(n, order);
    ++order.slot;
  }
  supervisor_.at(world_.timeline.now);
  supervisor_.ordered();
}

// --- commits of checkpoints ---

void Leader::begin(int term, int attempt, int world_size, const std::map<std::int64_t, bool>& decided) {
  generation_term_ = term;
  generation_attempt_ = attempt;
  world_size_ = world_size;
  pending_.clear(), commit_outcomes_.clear();
  for (const auto& [step, durable] : decided)
    commit_outcomes_[step] = {attempt, step, durable, durable ? "" : "dropped"};
}

void Leader::take(int n, const NodeVotes& v) {
  if (v.attempt != generation_attempt_ && world_.bug != Bug::old_votes) return;
  if (const auto known = commit_outcomes_.find(v.step); known != commit_outcomes_.end())
    return send(n, known->second);
  const bool first = !pending_.contains(v.step);
  Pending& pending = pending_[v.step];
  if (first)
    later(vote_limit_s, [this, step = v.step, attempt = generation_attempt_] {
      const auto late = pending_.find(step);
      if (attempt != generation_attempt_ || late == pending_.end() ||
          static_cast<int>(late->second.votes.size()) == world_size_)
        return;
      conclude(step, attempt, false, "votes are missing");
    });
  const auto payloads = v.each_payload();
  for (std::size_t i = 0; i < payloads.size(); ++i)
    pending.votes.emplace(v.votes[i].rank,
                          v.votes[i].ok ? std::optional<std::string>(payloads[i]) : std::nullopt);
  if (static_cast<int>(pending.votes.size()) == world_size_) settle(v.step);
}

void Leader::settle(std::int64_t step) {
  if (busy_ || !pending_.contains(step)) return;
  busy_ = true;
  struct Job {
    std::map<int, std::optional<std::string>> votes;
    AttemptKey key;
    bool durable = false;
    std::string note;
  };
  const auto job = std::make_shared<Job>();
  job->votes = pending_[step].votes;
  job->key = {generation_attempt_, generation_term_};
  const auto done = [this, job, step] {
    busy_ = false;
    conclude(step, job->key.number, job->durable, job->note);
  };
  later(world_.random.between(0.01, 0.2), [this, job, step, done] {
    for (const auto& [rank, digest] : job->votes)
      if (!digest || digest != job->votes.begin()->second)
        job->note = "not every rank has written the same state";
    if (!job->note.empty()) return later(0.001, done);
    if (!world_.storage.reachable(process_->node))
      return job->note = "the file system is gone", later(0.001, done);
    if (world_.bug != Bug::commit_unchecked && world_.storage.highest() != term_)
      return job->note = "another leader has taken over", later(0.001, done);
    world_.commit_begins(term_, job->key.number);
    // The rename that hangs happens, even if this leader resigns meanwhile.
    const std::weak_ptr<bool> alive = alive_;
    const auto rename = [this, &world = world_, term = term_, alive, job, step, done] {
      world.committed(term, job->key, step, *job->votes.begin()->second);
      job->durable = true;
      if (const auto there = alive.lock(); there && *there) later(world.random.between(0, 0.05), done);
    };
    if (world_.interrupted(process_)) return later(0, rename);
    world_.when_storage_answers(process_, rename);
  });
}

void Leader::conclude(std::int64_t step, int attempt, bool durable, const std::string& note) {
  const CommitOutcome outcome{attempt, step, durable, note};
  if (attempt == generation_attempt_) {
    commit_outcomes_[step] = outcome;
    pending_.erase(step);
  }
  covered(durable ? "checkpoint durable" : "checkpoint dropped");
  supervisor_.at(world_.timeline.now);
  supervisor_.checkpoint_decided(outcome, note);
  act([this, outcome] { send_all(outcome); });
  for (const auto& [next, pending] : pending_)
    if (static_cast<int>(pending.votes.size()) == world_size_) return settle(next);
}

}  // namespace holdfast::sim
