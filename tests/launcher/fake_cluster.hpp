#pragma once
// A simulated cluster in virtual time: agents, ranks that train in step, and the real supervisor
// between them. Time passes only in run(). A leader can be replaced; the next one knows only what is
// recorded.
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/supervise/supervisor.hpp"
#include "tests/launcher/record/log_entry.hpp"

namespace holdfast::launcher::test {

/// Those of a program other than holdfast-train.
inline config::RankPromises promises_of_a_program(config::RankKind kind = config::RankKind::automatic) {
  config::Rank rank;
  rank.command = {"train"};
  rank.kind = kind;
  return config::promises_of(rank);
}

struct Shape {
  int slots = 3, spares = 2, ranks_per_node = 2;
  bool reports = true;  ///< the ranks say where they are, as ours do
  config::Supervise limits = {};
  std::int64_t steps = 1000000, checkpoint_every = 10;
  int drain_s = 25;
  double save_s = 0.5;                  ///< of a checkpoint that was asked for
  bool local = false;                   ///< a local level at every step: an attempt that ends loses none
  std::vector<std::string> units = {};  ///< of the nodes; all "A" when empty
  RunFacts facts = {};
  StageTable stages = stage_table();
};

/// Nodes n0, n1, ...: the active ones first. The first spare is the batch host; it has the first leader.
inline Roster roster_of(const Shape& setup) {
  Roster roster;
  roster.job = "7.0";
  for (int n = 0; n < setup.slots + setup.spares; ++n) {
    const std::string name = "n" + std::to_string(n);
    roster.nodes.push_back({name, name, 1, setup.units.empty() ? "A" : setup.units[n]});
    if (n < setup.slots) roster.first_placement.push_back(n);
    roster.candidates.push_back(n);
  }
  roster.batch_host = setup.spares > 0 ? setup.slots : 0;
  roster.ranks_per_node = setup.ranks_per_node;
  return roster;
}

/// Slot -> node, as an "attempt_planned" event has it.
inline std::vector<std::string> placement_of(const nlohmann::json& planned) {
  return planned.at("placement").get<std::vector<std::string>>();
}

class FakeCluster {
 public:
  using json = nlohmann::json;
  static constexpr double tick_s = 0.05, step_s = 0.1, boot_s = 0.3, unix_offset = 1.7e9;

  struct Rank {
    int attempt = 0;
    std::int64_t step = -1;
    control::Phase phase = control::Phase::starting;
    bool hangs = false, finished = false;
    std::optional<int> status = {};  ///< it has ended
    std::optional<control::RankRestored> restored = {};
    std::optional<control::FinalState> state = {};
  };
  struct Agent {
    bool up = true, linked = true;      ///< the node lives; its link works
    bool beats = true;                  ///< its loop runs; its ranks go on without it
    bool kernel_answers = true;         ///< what is sent to it is acknowledged while its loop stands
    bool clears = true, starts = true;  ///< what it does when it is told
    bool connected = false;             ///< to the leader of the moment
    std::vector<control::SealedState> sealed = {};  ///< in its memory
    std::string fetches = {};                       ///< why it cannot fetch a state; empty: it can
    bool full = false;                              ///< that is because it has no room for one
    bool fetches_long = false;                      ///< it has not answered yet
    std::string copies_off = {};                    ///< why its mover makes none
    bool dumps = true;                              ///< it says what a rank's stacks are when it is asked
    std::optional<control::NodeHealth> health =
        control::NodeHealth{};  ///< what its checks find: nothing; not set: they do not come to an end
    int attempt = 0;            ///< highest heard of
    double next_beat = 0;
    std::map<int, Rank> ranks;
    std::vector<std::function<void(Supervisor&)>> words;  ///< on their way to the leader
    bool reachable() const { return up && linked; }
  };

  explicit FakeCluster(Shape s = {})
      : setup(std::move(s)), roster(roster_of(setup)), agents(roster.nodes.size()) {
    if (!setup.reports && setup.facts.promises.always_reports())
      setup.facts.promises = promises_of_a_program();
    new_leader(roster.batch_host);
  }

  Shape setup;
  Roster roster;
  std::vector<Agent> agents;
  std::vector<json> events;  ///< what a new leader would read
  double now = 1000;
  int leader_node = -1, term = 0;
  std::unique_ptr<Supervisor> leader;  ///< nothing: the leader is gone
  std::optional<int> exit_code;        ///< the run is over
  std::string resigned;
  std::int64_t durable = 0, reached = 0;
  control::Phase hung_phase = control::Phase::data, waiting_phase = control::Phase::collective;
  int actions_left = -1;  ///< >= 0: the leader dies after so many more actions
  std::function<void(const Action&)> on_action = [](const Action&) {};  ///< before it is carried out
  std::function<void(const Launch&)> on_launch = [](const Launch&) {};
  std::function<void()> after_tick = [] {};
  std::vector<std::pair<std::int64_t, std::string>>
      damaged;                     ///< what the leader finds before the next launch, ...
  bool checkpoints_left = true;    ///< ... and whether others are not
  std::vector<CheckNodes> checks;  ///< that were ordered
  std::vector<StateMove> fetched;  ///< moves of states that were ordered
  bool held = false;               ///< the ranks hold, on the leader's word

  Agent& agent(int n) { return agents[n]; }
  Stage stage() const { return leader ? leader->stage() : Stage::over; }

  // Time.
  void run(double seconds) {
    for (const double end = now + seconds - tick_s / 2; now < end;) tick();
  }
  bool until(const std::function<bool()>& there, double limit_s) {
    for (const double end = now + limit_s; now < end && !there();) tick();
    return there();
  }
  bool until(Stage wanted, double limit_s = 10) {
    return until([&] { return stage() == wanted; }, limit_s);
  }
  /// Runs until attempt `number` has made a new step.
  bool training(int number, double limit_s = 20) {
    return until(
        [&] {
          return leader && leader->attempt() == number && leader->state().attempts.back().first_step_at;
        },
        limit_s);
  }
  /// The leader's process is stopped (or waits for a disk); messages of the agents are read after its
  /// next tick.
  void leader_stopped_for(double seconds) {
    auto sleeping = std::move(leader);
    run(seconds);
    leader = std::move(sleeping);
    leader->at(now);
    leader->tick();
    act();
  }

  // Faults.
  void kill(int n) {
    agent(n) = Agent{};
    agent(n).up = false;
    if (n == leader_node) lose_leader();
  }
  void revive(int n) { agent(n).up = agent(n).linked = true; }
  void cut(int n) {
    agent(n).linked = agent(n).connected = false;
    if (n == leader_node) lose_leader();  // it cannot write the log either
  }
  void restart_agent(int n) {
    if (leader && agent(n).connected) leader->agent_gone(n);
    agent(n).connected = false;
    agent(n).words.clear();
  }
  /// The rank's process ends.
  void end_rank(int rank, int status) {
    for (int n = 0; n < static_cast<int>(agents.size()); ++n) {
      const auto it = agent(n).ranks.find(rank);
      if (it == agent(n).ranks.end() || it->second.status) continue;
      it->second.status = status;
      tell(n, [n, what = control::RankExited{rank, it->second.attempt, status}](Supervisor& s) {
        s.rank_exited(n, what);
      });
    }
  }
  void tell(int n, std::function<void(Supervisor&)> word) { agent(n).words.push_back(std::move(word)); }
  Rank& rank(int number) {
    for (auto& a : agents)
      if (const auto it = a.ranks.find(number); it != a.ranks.end()) return it->second;
    throw std::out_of_range("no such rank lives");
  }

  // Leadership.
  RunState replayed() const {
    RunState state;
    for (const auto& event : events) apply(state, entry(event));
    return state;
  }
  void lose_leader() {
    leader.reset();
    actions_left = -1;
    for (auto& a : agents) {
      a.connected = false;
      a.words.clear();
    }
  }
  void new_leader(int node) {
    lose_leader();
    leader_node = node;
    LogEntry elected{{},
                     events::LeaderElected{
                         roster.nodes[node].name, roster.job, 1, {}, static_cast<int>(roster.nodes.size())}};
    elected.envelope.term = ++term;
    elected.envelope.unix = now + unix_offset;
    write(elected);
    leader = std::make_unique<Supervisor>(roster, setup.limits, setup.drain_s, term, replayed(), now,
                                          now + unix_offset, setup.facts, setup.stages);
  }

  // The event log.
  std::vector<json> all(const std::string& kind) const {
    std::vector<json> out;
    for (const auto& event : events)
      if (event.at("event") == kind) out.push_back(event);
    return out;
  }
  json last(const std::string& kind) const {
    const auto found = all(kind);
    return found.empty() ? json::object() : found.back();
  }
  /// The kinds of all events, without checkpoints and the measured pace.
  std::vector<std::string> event_kinds() const {
    std::vector<std::string> out;
    for (const auto& event : events)
      if (const std::string kind = event.at("event"); !kind.starts_with("checkpoint") && kind != "pace")
        out.push_back(kind);
    return out;
  }
  json result() const { return result_of(replayed()); }

 private:
  void write(const LogEntry& entry) { events.push_back(json::parse(line_of(entry))); }

  void tick() {
    now += tick_s;
    if (now >= next_step_) {
      next_step_ = now + step_s - tick_s / 2;
      train();
    }
    if (leader) {
      leader->at(now);
      hear_agents();
      leader->tick();
      act();
    }
    after_tick();
  }

  control::Heartbeat heartbeat_of(int n) {
    const Agent& a = agent(n);
    control::Heartbeat beat{roster.nodes[n].name, a.attempt, {}, a.copies_off};
    for (const auto& [number, r] : a.ranks)
      if (r.attempt == a.attempt && !r.status) beat.ranks.push_back({number, r.attempt, r.step, r.phase});
    return beat;
  }

  void hear_agents() {
    for (int n = 0; n < static_cast<int>(agents.size()); ++n) {
      Agent& a = agent(n);
      if (!a.reachable()) continue;
      if (!a.beats) {
        if (a.kernel_answers) leader->kernel_answered(n, now);
        continue;
      }
      if (!a.connected) {
        a.connected = true;
        a.next_beat = now + (n % 4) * 0.25e-3 * setup.limits.heartbeat_ms -
                      tick_s / 2;  // nobody beats in step with others
        a.words.clear();
        leader->heartbeat(n, heartbeat_of(n));
        for (const auto& [number, r] : a.ranks) repeat(n, number, r);
        if (leader->attempt() > 0) clear(n, leader->attempt());
        if (const auto asked = leader->state().asked_of_ranks()) ordered_ = *asked;
        held = leader->state().hold_ranks();
      } else {
        for (const auto& word : std::exchange(a.words, {})) word(*leader);
      }
      if (now < a.next_beat) continue;
      a.next_beat = now + setup.limits.heartbeat_ms * 1e-3 - tick_s / 2;
      leader->heartbeat(n, heartbeat_of(n));
    }
  }

  /// The messages about a rank that a new leader must get.
  void repeat(int n, int number, const Rank& r) {
    leader->rank_started(n, {number, r.attempt, 1});
    if (r.restored) leader->rank_restored(*r.restored);
    if (r.finished) leader->rank_finished({number, r.attempt, r.state});
    if (r.status) leader->rank_exited(n, {number, r.attempt, *r.status});
  }

  /// The leader calls it anew.
  void disconnect(const std::string& lost) {
    for (std::size_t n = 0; n < agents.size(); ++n)
      if (roster.nodes[n].name == lost) restart_agent(static_cast<int>(n));
  }

  void clear(int n, int attempt) {
    Agent& a = agent(n);
    if (attempt < a.attempt) return;
    a.attempt = attempt;
    std::erase_if(a.ranks, [&](const auto& entry) { return entry.second.attempt < attempt; });
    if (a.clears)
      tell(n, [n, attempt, sealed = a.sealed](Supervisor& s) {
        s.states_sealed(n, attempt, sealed);
        s.cleared(n, attempt);
      });
  }

  void act() {
    for (auto actions = leader->take_actions(); !actions.empty(); actions = leader->take_actions()) {
      for (const auto& action : actions) {
        if (actions_left == 0) return lose_leader();
        if (actions_left > 0) --actions_left;
        on_action(action);
        if (const auto* record = std::get_if<Record>(&action)) {
          write(record->entry);
          if (const auto* lost = std::get_if<events::NodeLost>(&record->entry.event)) disconnect(lost->node);
        } else if (const auto* order = std::get_if<ClearAll>(&action)) {
          for (int n = 0; n < static_cast<int>(agents.size()); ++n)
            if (agent(n).reachable() && agent(n).connected) clear(n, order->attempt);
          leader->ordered();
        } else if (const auto* fetch = std::get_if<FetchStates>(&action)) {
          for (const auto& move : fetch->moves) {
            fetched.push_back(move);
            if (agent(move.to).fetches_long) continue;
            const std::string& why = agent(move.to).fetches;
            this->tell(move.to,
                       [n = move.to,
                        said = control::StateFetched{fetch->attempt, fetch->state.step, fetch->state.attempt,
                                                     why.empty() ? -1 : move.rank, why, agent(move.to).full}](
                           Supervisor& s) { s.state_fetched(n, said); });
          }
        } else if (const auto* start = std::get_if<Launch>(&action)) {
          if (start->from.sealed_step < 0 && !damaged.empty() &&
              !leader->checkpoints_judged(std::exchange(damaged, {}), checkpoints_left))
            continue;
          on_launch(*start);
          launch(*start);
          if (leader) leader->ordered();
        } else if (const auto* tell = std::get_if<TellRanks>(&action)) {
          ordered_ = tell->what;
        } else if (const auto* hold = std::get_if<PauseRanks>(&action)) {
          held = hold->on;
        } else if (const auto* check = std::get_if<CheckNodes>(&action)) {
          checks.push_back(*check);
          for (const int n : check->nodes)
            if (const auto& health = agent(n).health)
              this->tell(n, [n, found = *health](Supervisor& s) { s.node_health(n, found); });
        } else if (const auto* dump = std::get_if<DumpRank>(&action)) {
          if (!agent(dump->node).dumps) continue;
          this->tell(dump->node, [n = dump->node, said = control::Stacks{leader->attempt(), dump->rank,
                                                                         "#0 wait\n#1 gather\n"}](
                                     Supervisor& s) { s.stacks(n, said); });
        } else if (const auto* end = std::get_if<FinishRun>(&action)) {
          exit_code = end->exit_code;
          launched_.reset();
          actions_left = -1;
        } else if (const auto* resignation = std::get_if<Resign>(&action)) {
          resigned = resignation->why;
          if (leader->stage() != Stage::over) throw std::logic_error("who resigns decides no more");
          return lose_leader();
        }
      }
    }
  }

  void launch(const Launch& what) {
    launched_ = what;
    begins_ = now + boot_s;
    ordered_.reset();
    saving_.reset();
    held = false;
    if (what.from.trusted_step >= 0) durable = reached = what.from.trusted_step;
    for (std::size_t slot = 0; slot < what.placement.size(); ++slot) {
      const int n = what.placement[slot];
      Agent& a = agent(n);
      if (!a.reachable() || !a.starts || a.attempt != what.attempt) continue;
      for (int i = 0; i < setup.ranks_per_node; ++i) {
        const int number = static_cast<int>(slot) * setup.ranks_per_node + i;
        a.ranks[number] = Rank{.attempt = what.attempt};
        tell(n, [n, started = control::RankStarted{number, what.attempt, 1}](Supervisor& s) {
          s.rank_started(n, started);
        });
      }
    }
  }

  /// One optimizer step of all ranks, or of none: they wait for each other.
  void train() {
    if (!launched_ || now < begins_ || !setup.reports) return;
    std::vector<Rank*> ranks;
    bool whole = true;
    for (std::size_t slot = 0; slot < launched_->placement.size(); ++slot) {
      Agent& a = agent(launched_->placement[slot]);
      for (int i = 0; i < setup.ranks_per_node; ++i) {
        const auto it = a.ranks.find(static_cast<int>(slot) * setup.ranks_per_node + i);
        if (a.reachable() && it != a.ranks.end() && it->second.attempt == launched_->attempt &&
            !it->second.status)
          ranks.push_back(&it->second);
        whole = whole && a.reachable() && it != a.ranks.end() && it->second.attempt == launched_->attempt &&
                !it->second.status && !it->second.hangs;
      }
    }
    for (Rank* r : ranks) r->phase = whole ? control::Phase::forward : r->hangs ? hung_phase : waiting_phase;
    if (!whole) return;
    if (held && ranks.front()->step >= 0) {
      for (Rank* r : ranks) r->phase = control::Phase::paused;
      return;
    }
    if (ranks.front()->step < 0) {
      const std::int64_t step = setup.local ? reached : durable;
      for (Rank* r : ranks) r->step = step;
      const control::RankRestored from{0,
                                       launched_->attempt,
                                       {step,
                                        step == 0     ? "fresh"
                                        : setup.local ? "local"
                                                      : "shared",
                                        "00", ""}};
      ranks.front()->restored = from;
      return tell(launched_->placement.front(), [from](Supervisor& s) { s.rank_restored(from); });
    }
    if (saving_ && !carry_out_order()) return;
    const std::int64_t step = reached = ++ranks.front()->step;
    for (Rank* r : ranks) r->step = step;
    if (ordered_ && !saving_) saving_ = Saving{step, now + setup.save_s};
    if (step % setup.checkpoint_every == 0 && leader) {
      durable = step;
      leader->at(now);
      leader->checkpoint_decided({launched_->attempt, step, true, ""}, "");
    }
    if (step >= setup.steps) finish_ranks(step);
  }

  /// Can training continue?
  bool carry_out_order() {
    if (now < saving_->until || !leader) return !ordered_->stop;
    const bool stop = ordered_->stop;
    durable = std::max(durable, saving_->step);
    leader->at(now);
    leader->checkpoint_decided({launched_->attempt, saving_->step, true, ""}, "");
    ordered_.reset(), saving_.reset();
    if (!stop) return true;
    for (const int n : launched_->placement)
      for (auto& [number, r] : agent(n).ranks) {
        r.status = 75;
        tell(n, [n, failed = control::RankFailed{number, r.attempt, 75, "told to end"}](Supervisor& s) {
          s.rank_failed(n, failed);
          s.rank_exited(n, {failed.rank, failed.attempt, 75});
        });
      }
    return false;
  }

  void finish_ranks(std::int64_t step) {
    for (std::size_t slot = 0; slot < launched_->placement.size(); ++slot) {
      const int n = launched_->placement[slot];
      for (auto& [number, r] : agent(n).ranks) {
        r.finished = true;
        r.status = 0;
        if (number == 0) r.state = control::FinalState{step, step * 100, 2.5, "00000000000000ab"};
        tell(n, [n, finished = control::RankFinished{number, r.attempt, r.state}](Supervisor& s) {
          s.rank_finished(finished);
          s.rank_exited(n, {finished.rank, finished.attempt, 0});
        });
      }
    }
    launched_.reset();
  }

  struct Saving {
    std::int64_t step;
    double until;
  };
  std::optional<Launch> launched_;
  std::optional<control::Drain> ordered_;  ///< not yet carried out
  std::optional<Saving> saving_;
  double next_step_ = 0, begins_ = 0;
};

/// The run ends within so long.
inline bool over(FakeCluster& c, double limit_s) {
  return c.until([&] { return c.exit_code.has_value(); }, limit_s);
}
inline const control::Drain sigterm{true, "SIGTERM"};

}  // namespace holdfast::launcher::test
