// The leader between the agents and its supervisor, in the loop of the agent that hosts it.
//
// 1. It calls every agent, and tells it all that is ordered now (greet): the agent may be new, or have been
//    cut off.
// 2. It tells the supervisor what agents report (take). Votes go to the commit coordinator, PMIx fences to
//    the hub, which answer without a decision.
// 3. Every 50 ms it calls agents that are gone, looks which kernels answer, and lets the supervisor look at
//    the time (tick).
// 4. What the supervisor decides is queued, recorded, and then carried out, in this order (leader_acts.cpp).
//    While a record waits for the disk, nothing more is decided, and no deadline passes.
// 5. It resigns when another leader has a higher term, when fewer than half of the agents answer, or when
//    shared storage answers other nodes and not this one.
//
// It decides nothing itself, and the loop never waits: disks, SLURM and checkpoints are asked in threads.
#include "launcher/agent/leader/leader.hpp"

#include <unistd.h>

#include "launcher/agent/leader/job_settings.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "launcher/supervise/order_table.hpp"
#include "launcher/supervise/valid_events.hpp"
#include "slurm/batch_script.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis tick_period{50};
constexpr std::size_t sealed_in_a_turn = 4u << 20;  // bytes: about ten milliseconds
constexpr Millis dial_limit{2000};
constexpr Millis redial_pause{200};        // to an agent that should be there
constexpr Millis lost_redial_pause{1000};  // to one that is lost: it may come back as a spare
constexpr Millis stuck_batch{2000};        // while decisions wait so long for the disk, no more are made
constexpr Millis taken_limit{1000};        // for a rank to take an order; who gave it waits for two seconds
constexpr Millis signs_spread{2000};       // between agents that look each second and see the same storage

bool leads_still(const RunDir& run, int term) {
  const int highest = highest_valid_term(run, term);
  if (highest < term)
    throw Error(Exit::transient, "the run directory does not answer", "this term's file is gone");
  return highest == term;
}
}  // namespace

TermStart start_term(const RunDir& run, const Roster& roster, int term, int self,
                     const std::function<double()>& unix_now) {
  TermStart out;
  out.journal = std::make_shared<Journal>(run, term);
  const auto entries = read_events(run, term);
  for (const auto& entry : entries) apply(out.state, entry);
  out.last_leader = out.state.leader;
  out.last_term = last_read(entries).term;
  const LogEntry elected =
      out.journal->write(events::LeaderElected{roster.nodes[self].name, roster.job, ::getpid(),
                                               last_read(entries), static_cast<int>(roster.nodes.size())},
                         unix_now());
  apply(out.state, elected);
  if (const JobSettings settings(run, out.state.job_term); settings.are_new()) {
    if (auto changed = settings.changed())
      apply(out.state, out.journal->write(std::move(*changed), unix_now()));
    settings.keep();
  }
  return out;
}

Leader::Leader(Loop& loop, RunDir run, Roster roster, const config::RunConfig& config, const Key& secret,
               std::shared_ptr<slurm::Cluster> cluster, int term, int self, TermStart start,
               LeadershipState::Heard heard, std::function<void(const std::string&)> resigned)
    : loop_(loop),
      run_(std::move(run)),
      roster_(std::move(roster)),
      config_(config),
      secret_(secret),
      term_(term),
      self_(self),
      resigned_(std::move(resigned)),
      journal_(std::move(start.journal)),
      supervisor_(roster_, config_.supervise, config_.checkpoint.drain_s, term, std::move(start.state),
                  loop_.steady_seconds(), loop_.unix_now(), run_facts_of(config_)),
      script_(loop_, std::move(cluster), std::stoll(roster_.job),  // "JOB.RESTARTS" or "JOB.RESTARTS.TRY"
              slurm::notice_for(config_.checkpoint.drain_s, slurm::limit_in(config_.slurm.time)),
              [this] {
                supervisor_.at(loop_.steady_seconds());
                supervisor_.drain({true, "the time limit is near"});
                act();
              }),
      connections_(roster_.nodes.size()),
      journal_writer_(loop_, run_, term_, journal_),
      side_(loop_),
      judge_(loop_) {
  coordinator_ = std::make_unique<CommitCoordinator>(
      loop_, run_.checkpoints(), config_.checkpoint,
      CommitCoordinator::Handlers{
          [run = run_, term] { return leads_still(run, term); },
          [this](const CommitOutcome& outcome, const std::string& note, double stalled_s) {
            log::info("the longest turn of the leader's loop since the last checkpoint took {:.1f} ms",
                      1000 * loop_.longest_turn());
            supervisor_.at(loop_.steady_seconds());
            supervisor_.checkpoint_decided(outcome, note, stalled_s);
            act([this, outcome] {
              send_all(outcome);
              coordinator_->tidy();
            });
          },
          [this](const std::vector<std::int64_t>& steps) {
            supervisor_.at(loop_.steady_seconds());
            supervisor_.checkpoints_removed(steps);
            act();
          },
          [this](int n, const CommitOutcome& outcome) { send(n, outcome); }});
  const int before = roster_.node_called(start.last_leader);
  if (before >= 0 && before != self && heard.at >= 0 && heard.term == start.last_term)
    supervisor_.last_leader_heard(before, heard.at);
  const RunState& state = supervisor_.state();
  ordered_.attempt = supervisor_.attempt();
  ordered_.drain = supervisor_.asked_of_ranks();
  ordered_.paused = state.hold_ranks();
  if (state.attempt_live()) {
    const auto& live = state.attempts.back();
    coordinator_->begin({live.term, live.number},
                        static_cast<int>(live.placement.size()) * roster_.ranks_per_node,
                        state.commit_outcomes);
    fences_.begin(live.number);
  }
  script_.watch_the_clock();
  tick_timer_ = loop_.every(tick_period, [this] { tick(); });
  heartbeat_timer_ =
      loop_.every(Millis(config_.supervise.heartbeat_ms), [this] { send_all(LeaderHeartbeat{term_}); });
  loop_.post([this, alive = std::weak_ptr<void>(tick_timer_)] {
    if (!alive.expired()) tick();
  });
}

Leader::~Leader() = default;

bool Leader::script_is_lost() const {
  return roster_.batch_host >= 0 && supervisor_.state().lost.contains(node(roster_.batch_host).name);
}

void Leader::resign(const std::string& why) {
  if (std::exchange(over_, true)) return;
  tick_timer_.reset();
  heartbeat_timer_.reset();
  fenced_timer_.reset();
  for (auto& connection : connections_) connection.channel.reset();
  resigned_(why);
}

// --- connections to the agents ---

void Leader::connect(int n) {
  Connection& connection = connections_[n];
  connection.greeted = connection.storage_gone = false;
  connection.channel = dial(loop_, node(n).agent(), secret_, dial_limit,
                            {[this, n] { greet(n); },
                             [this, n](std::string_view text) {
                               std::string why;
                               auto message = decode<AgentToLeader>(text, why);
                               if (!message)
                                 return log::warn("a message of {} was refused: {}", node(n).name, why);
                               take(n, std::move(*message));
                             },
                             [this, n](const std::string& why) { connection_lost(n, why); }});
}

/// An agent that was restarted or cut off meanwhile does not know what was ordered.
void Leader::greet(int n) {
  send(n, Hello{Hello::Role::leader, node(self_).name, term_, 0, -1, ::getpid()});
  if (ordered_.attempt > 0) send(n, Clear{term_, ordered_.attempt});
  if (const auto fetch = ordered_.fetches.find(n);
      fetch != ordered_.fetches.end() && supervisor_.stage() == Stage::clearing)
    send(n, fetch->second);
  // Later, an agent that was replaced must not start ranks that have ended.
  if (const auto start = ordered_.starts.find(n);
      start != ordered_.starts.end() && supervisor_.stage() == Stage::starting)
    send(n, start->second);
  if (ordered_.drain && supervisor_.state().asked_of_ranks()) send(n, *ordered_.drain);
  send(n, Pause{ordered_.paused});
  if (ordered_.finish) send(n, Finish{*ordered_.finish});
}

/// What a lost node was told before may be void, though its connection has not broken: it is told all anew,
/// and can be used again once it has answered.
void Leader::call_again(const std::string& lost) {
  for (int n = 0; n < static_cast<int>(connections_.size()); ++n)
    if (node(n).name == lost && connections_[n].channel) connection_lost(n, "the node is lost");
}

void Leader::connection_lost(int n, const std::string& why) {
  // It would take for lost whom it cannot call.
  if (could_not_call(why)) return resign("this node has no descriptor left for a connection: " + why);
  Connection& connection = connections_[n];
  if (connection.greeted) supervisor_.agent_gone(n);
  supervisor_.agent_unreached(n, why);
  connection.greeted = false;
  connection.channel.reset();
  const bool given_up = supervisor_.state().lost.contains(node(n).name);
  connection.next_dial = loop_.now() + (given_up ? lost_redial_pause : redial_pause);
}

void Leader::take(int n, AgentToLeader message) {
  if (over_) return;
  supervisor_.at(loop_.steady_seconds());
  std::function<void()> answer;  // once the consequences are on record
  std::visit(
      Overloaded{
          [&](const Heartbeat& m) {
            connections_[n].greeted = true;
            supervisor_.heartbeat(n, m);
          },
          [&](const Cleared& m) {
            connections_[n].free_port = m.free_port;
            connections_[n].mover = m.mover;
            supervisor_.states_sealed(n, m.attempt, m.sealed);
            supervisor_.cleared(n, m.attempt);
          },
          [&](const ProcessesLeft& m) { supervisor_.processes_left(n, m); },
          [&](const StateFetched& m) { supervisor_.state_fetched(n, m); },
          [&](const RankStarted& m) { supervisor_.rank_started(n, m); },
          [&](const RankWaits& m) { supervisor_.rank_waits(n, m); },
          [&](const RankRestored& m) { supervisor_.rank_restored(m); },
          [&](NodeVotes& m) { coordinator_->take(n, std::move(m)); },
          [&](const RankDoubt& m) { supervisor_.rank_doubt(n, m); },
          [&](const RankFlight& m) { supervisor_.rank_flight(n, m); },
          [&](const RankHeard& m) { supervisor_.rank_heard(m); },
          [&](const RankSeen& m) { supervisor_.rank_seen(n, m); },
          [&](const RankFinished& m) { supervisor_.rank_finished(m); },
          [&](const RankFailed& m) { supervisor_.rank_failed(n, m); },
          [&](const RankExited& m) { supervisor_.rank_exited(n, m); },
          [&](PmixFence& m) { take_fence(n, std::move(m)); },
          [&](const PmixQuestion& m) { ask_node_of(n, m); },
          [&](const PmixPublished& m) {
            if (m.asker >= 0 && m.asker < static_cast<int>(connections_.size()) &&
                m.attempt == supervisor_.attempt())
              send(m.asker, m);
          },
          [&](const NodeSigns& m) {
            take_signs(n, m);
            supervisor_.node_signs(n, m);
          },
          [&](const NodeHealth& m) { supervisor_.node_health(n, m); },
          [&](const Stacks& m) {
            keep_stacks(n, m);
            supervisor_.stacks(n, m);
          },
          [&](const Drain& m) { supervisor_.drain(m); },
          [&](const Order& m) {
            answer = [this, told = ToldOrder{n, m.verb, supervisor_.order(m), {}}] { answer_order(told); };
          },
      },
      message);
  act(std::move(answer));
}

/// Who ordered hears whether a rank has taken it. A step may take longer than a person waits.
void Leader::answer_order(ToldOrder told) {
  told.limit = loop_.now() + taken_limit;
  told_orders_.push_back(std::move(told));
  answer_orders();
}

void Leader::answer_orders() {
  std::erase_if(told_orders_, [this](ToldOrder& told) {
    const bool untaken = told.says.taken && supervisor_.untaken(told.verb);
    if (untaken && loop_.now() < told.limit) return false;
    if (untaken) told.says.says = untaken_words(told.verb, config_.checkpoint.drain_s);
    send(told.node, told.says);
    return true;
  });
}

void Leader::take_fence(int n, PmixFence fence) {
  const auto complete = fences_.take(n, std::move(fence));
  if (!complete) return;
  if (!complete->answer.ok)
    log::error("the ranks publish more than {} at a PMIx fence", size_text(max_published));
  const auto text = std::make_shared<const std::string>(encode(complete->answer));
  for (const int to : complete->nodes) fenced_.emplace_back(to, text);
  if (!fenced_timer_) send_fenced();
}

/// To seal megabytes for every node takes as long as everything else may wait: a part of them in each turn of
/// the loop.
void Leader::send_fenced() {
  fenced_timer_.reset();
  for (std::size_t bytes = 0; !fenced_.empty() && bytes < sealed_in_a_turn;) {
    const auto [to, text] = std::move(fenced_.front());
    fenced_.pop_front();
    bytes += text->size();
    const auto& channel = connections_[to].channel;
    if (channel && channel->open()) channel->send_shared(text);
  }
  if (!fenced_.empty()) fenced_timer_ = loop_.after(Millis(0), [this] { send_fenced(); });
}

void Leader::ask_node_of(int asker, PmixQuestion question) {
  if (question.attempt != supervisor_.attempt() || question.rank >= supervisor_.world()) return;
  question.asker = asker;
  send(supervisor_.placement()[question.rank / roster_.ranks_per_node], question);
}

void Leader::take_signs(int n, const NodeSigns& signs) {
  for (const auto& sign : signs.signs) {
    if (sign.kind == "shared_gone") connections_[n].storage_gone = true;
    if (sign.kind == "shared_back") connections_[n].storage_gone = false;
  }
}

/// Of the other agents that are connected, half at least can write to shared storage.
bool Leader::storage_answers_others() const {
  int others = 0, gone = 0;
  for (int n = 0; n < static_cast<int>(connections_.size()); ++n) {
    if (n == self_ || !connections_[n].greeted) continue;
    ++others;
    gone += connections_[n].storage_gone;
  }
  return others > 0 && 2 * gone <= others;
}

void Leader::send(int n, const Message& message) {
  const auto& channel = connections_[n].channel;
  if (channel && channel->open()) channel->send(encode(message));
}

void Leader::send_all(const Message& message) {
  const std::string text = encode(message);
  for (const auto& connection : connections_)
    if (connection.channel && connection.channel->open()) connection.channel->send(text);
}

void Leader::tick() {
  if (over_) return;
  answer_orders();
  for (int n = 0; n < static_cast<int>(connections_.size()); ++n)
    if (!connections_[n].channel && loop_.now() >= connections_[n].next_dial) connect(n);
  // While shared storage hangs for all nodes nobody can take over: this leader waits, and leads. When it
  // hangs for this node alone, another one can decide.
  const bool answers_others = storage_answers_others();
  if (answers_others && connections_[self_].storage_gone) {
    if (!behind_others_since_) behind_others_since_ = loop_.now();
    if (loop_.now() - *behind_others_since_ >= signs_spread)
      return resign("shared storage does not answer " + node(self_).name + ", and it answers other nodes");
  } else {
    behind_others_since_.reset();
  }
  if (answers_others) journal_writer_.tick();
  // Decisions cannot be carried out now, so no deadline of the supervisor may pass: it does not count the
  // time between two ticks.
  if (over_ || journal_writer_.waits() > stuck_batch) return;
  supervisor_.at(loop_.steady_seconds());
  for (int n = 0; n < static_cast<int>(connections_.size()); ++n) {
    const auto& channel = connections_[n].channel;
    if (!channel || supervisor_.hears(n)) continue;
    if (const auto silent_s = channel->unacknowledged_s())
      supervisor_.kernel_answered(n, loop_.steady_seconds() - *silent_s);
  }
  supervisor_.tick();
  if (script_is_lost() && supervisor_.stage() != Stage::over) script_.is_lost();
  act();
}

}  // namespace holdfast::launcher
