#include "launcher/agent/leader.hpp"

#include <unistd.h>

#include "launcher/agent/rank_start.hpp"
#include "slurm/batch_script.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr Millis tick_period{50};
constexpr Millis dial_limit{2000};
constexpr Millis redial_pause{200};        // to an agent that should be there
constexpr Millis lost_redial_pause{2000};  // to one that is given up: it may come back as a spare
constexpr int master_port_base = 29500;    // torch's default; one port further per attempt

double steady_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

Supervisor make_supervisor(const RunDir& run, const Roster& roster, const config::RunConfig& config,
                           int epoch, Journal& journal, int self) {
  RunState state = fold(run);
  const nlohmann::json elected = journal.write({{"event", "leader_elected"},
                                                {"node", roster.nodes[static_cast<std::size_t>(self)].name},
                                                {"pid", ::getpid()},
                                                {"job", roster.job}});
  apply_event(state, elected);
  return {roster, config.supervise, config.checkpoint.drain_s, through_mpirun(config.rank),
          epoch,  std::move(state), steady_seconds(),          unix_seconds()};
}
}  // namespace

Leader::Leader(Loop& loop, RunDir run, Roster roster, const config::RunConfig& config, const Key& secret,
               std::shared_ptr<slurm::Cluster> cluster, int epoch, int self,
               std::function<void(const std::string&)> resigned)
    : loop_(loop),
      run_(std::move(run)),
      roster_(std::move(roster)),
      config_(config),
      secret_(secret),
      epoch_(epoch),
      self_(self),
      resigned_(std::move(resigned)),
      journal_(run_, epoch),
      supervisor_(make_supervisor(run_, roster_, config_, epoch, journal_, self)),
      script_(loop_, std::move(cluster), std::stoll(roster_.job),  // "JOB.RESTARTS"
              slurm::notice_for(config_.checkpoint.drain_s),
              [this] {
                supervisor_.at(steady_seconds());
                supervisor_.drain({true, "the time limit is near"});
                act();
              }),
      lines_(roster_.nodes.size()) {
  desk_ = std::make_unique<CommitDesk>(
      loop_, run_.checkpoints(), config_.checkpoint,
      CommitDesk::Handlers{[this] { return still_leading(); },
                           [this](const Verdict& verdict, const std::string& note) {
                             supervisor_.at(steady_seconds());
                             supervisor_.checkpoint_decided(verdict, note);
                             act();
                             send_all(verdict);
                           },
                           [this](const Verdict& verdict) { send_all(verdict); }});
  if (supervisor_.state().attempt_live()) {
    const auto& live = supervisor_.state().attempts.back();
    desk_->begin({live.epoch, live.number}, roster_.world(), supervisor_.state().verdicts);
  }
  tick_timer_ = loop_.every(tick_period, [this] { tick(); });
  beat_timer_ = loop_.every(Millis(config_.supervise.heartbeat_ms), [this] { send_all(LeaderBeat{epoch_}); });
  loop_.post([this, alive = std::weak_ptr<void>(tick_timer_)] {
    if (!alive.expired()) tick();
  });
}

Leader::~Leader() = default;

bool Leader::script_is_lost() const {
  return roster_.batch_host >= 0 &&
         supervisor_.state().lost.contains(roster_.nodes[static_cast<std::size_t>(roster_.batch_host)].name);
}

bool Leader::still_leading() const { return highest_epoch(run_) == epoch_; }

void Leader::resign(const std::string& why) {
  if (std::exchange(over_, true)) return;
  tick_timer_.reset(), beat_timer_.reset();
  for (auto& line : lines_) line.channel.reset();
  resigned_(why);
}

// --- lines to the agents ---

void Leader::call(int n) {
  const auto& node = roster_.nodes[static_cast<std::size_t>(n)];
  Line& line = lines_[static_cast<std::size_t>(n)];
  line.greeted = false;
  line.channel =
      dial(loop_, TcpAddress{node.address, node.port}, secret_, dial_limit,
           {[this, n] {
              send(n, Hello{Hello::Role::leader, roster_.nodes[static_cast<std::size_t>(self_)].name, epoch_,
                            0, -1, ::getpid()});
              if (supervisor_.attempt() > 0) send(n, Clear{epoch_, supervisor_.attempt()});
              // An agent that was restarted has forgotten it, and knows of no other leader's.
              if (const auto& drain = supervisor_.state().drain) send(n, drain->what);
              // Whoever was out of reach when the run ended hears of it now.
              if (const auto& verdict = supervisor_.state().verdict) send(n, Finish{verdict->exit_code});
            },
            [this, n](std::string_view text) {
              std::string why;
              const auto message = decode(text, why);
              if (!message)
                return log::warn("a malformed message of {} was refused: {}",
                                 roster_.nodes[static_cast<std::size_t>(n)].name, why);
              take(n, *message);
            },
            [this, n](const std::string&) { lost_line(n); }});
}

void Leader::lost_line(int n) {
  Line& line = lines_[static_cast<std::size_t>(n)];
  if (line.greeted) supervisor_.agent_gone(n);
  line.greeted = false;
  line.channel.reset();
  const bool given_up = supervisor_.state().lost.contains(roster_.nodes[static_cast<std::size_t>(n)].name);
  line.next_dial = Clock::now() + (given_up ? lost_redial_pause : redial_pause);
}

void Leader::take(int n, const Message& message) {
  if (over_) return;
  supervisor_.at(steady_seconds());
  if (const auto* m = std::get_if<Beat>(&message)) {
    lines_[static_cast<std::size_t>(n)].greeted = true;
    supervisor_.agent_here(n, *m);
  } else if (const auto* cleared = std::get_if<Cleared>(&message)) {
    supervisor_.cleared(n, cleared->attempt);
  } else if (const auto* started = std::get_if<RankStarted>(&message)) {
    supervisor_.rank_started(n, *started);
  } else if (const auto* exited = std::get_if<RankExited>(&message)) {
    supervisor_.rank_exited(n, *exited);
  } else if (const auto* failed = std::get_if<RankFailed>(&message)) {
    supervisor_.rank_failed(n, *failed);
  } else if (const auto* finished = std::get_if<RankFinished>(&message)) {
    supervisor_.rank_finished(*finished);
  } else if (const auto* restored = std::get_if<RankRestored>(&message)) {
    supervisor_.rank_restored(*restored);
  } else if (const auto* flight = std::get_if<RankFlight>(&message)) {
    supervisor_.rank_flight(n, *flight);
  } else if (const auto* ended = std::get_if<MpirunExited>(&message)) {
    supervisor_.mpirun_exited(n, *ended);
  } else if (const auto* drain = std::get_if<Drain>(&message)) {
    supervisor_.drain(*drain);
  } else if (const auto* vote = std::get_if<RankVote>(&message)) {
    desk_->vote(*vote);
  }
  act();
}

void Leader::send(int n, const Message& message) {
  const auto& channel = lines_[static_cast<std::size_t>(n)].channel;
  if (channel && channel->open()) channel->send(encode(message));
}

void Leader::send_all(const Message& message) {
  const std::string text = encode(message);
  for (const auto& line : lines_)
    if (line.channel && line.channel->open()) line.channel->send(text);
}

// --- time and decisions ---

void Leader::tick() {
  if (over_) return;
  for (int n = 0; n < static_cast<int>(lines_.size()); ++n)
    if (!lines_[static_cast<std::size_t>(n)].channel &&
        Clock::now() >= lines_[static_cast<std::size_t>(n)].next_dial)
      call(n);
  supervisor_.at(steady_seconds());
  supervisor_.tick();
  if (script_is_lost() && supervisor_.stage() != Stage::over) script_.watch_the_clock();
  act();
}

void Leader::act() {
  for (auto actions = supervisor_.take_actions(); !actions.empty() && !over_;
       actions = supervisor_.take_actions()) {
    try {
      if (!still_leading()) return resign("a higher epoch exists");
      for (const auto& action : actions) {
        if (const auto* record = std::get_if<Record>(&action)) {
          journal_.write(record->event);
          log::info("{}", record->event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
        } else if (const auto* clear = std::get_if<ClearAll>(&action)) {
          desk_->begin({epoch_, clear->attempt}, roster_.world());
          send_all(Clear{epoch_, clear->attempt});
        } else if (const auto* start = std::get_if<Launch>(&action)) {
          launch(*start);
        } else if (const auto* tell = std::get_if<TellRanks>(&action)) {
          send_all(tell->what);
        } else if (const auto* finish = std::get_if<FinishRun>(&action)) {
          files::replace_atomically(run_.result(), result_of(supervisor_.state()).dump(2) + "\n");
          send_all(Finish{finish->exit_code});
          if (script_is_lost()) script_.conclude(finish->exit_code);
        } else if (const auto* resignation = std::get_if<Resign>(&action)) {
          return resign(resignation->why);
        }
      }
    } catch (const std::exception& error) {
      return resign(error.what());  // the shared file system is the arbiter: without it nobody leads
    }
  }
}

void Leader::launch(const Launch& what) {
  files::fs::create_directories(attempt_logs(run_, what.attempt));
  if (through_mpirun(config_.rank)) {
    StartMpirun order{epoch_, what.attempt, {}};
    for (const int n : what.placement) order.slots.push_back(roster_.nodes[static_cast<std::size_t>(n)].name);
    return send(self_, order);
  }
  for (std::size_t slot = 0; slot < what.placement.size(); ++slot) {
    StartRanks order{epoch_,
                     what.attempt,
                     roster_.world(),
                     roster_.ranks_per_node,
                     master_port_base + what.attempt % 1000,
                     roster_.nodes[static_cast<std::size_t>(what.placement.front())].address,
                     {}};
    for (int i = 0; i < roster_.ranks_per_node; ++i)
      order.ranks.push_back({static_cast<int>(slot) * roster_.ranks_per_node + i, i});
    send(what.placement[slot], order);
  }
}

}  // namespace holdfast::launcher
