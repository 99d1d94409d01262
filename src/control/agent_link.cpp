#include "src/control/agent_link.hpp"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::control {
namespace {

constexpr Millis beat_period{100};
constexpr Millis redial_pause{100};

class AgentLink final : public RankLink {
 public:
  explicit AgentLink(const RankEnv& place)
      : place_(place), key_(read_secret(place.key_file, "the key of this rank")) {
    thread_ = std::thread([this] { serve(); });
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(10), [this] { return connected_; })) {
      lock.unlock();
      end();
      throw Error(Exit::transient, "the agent on this node does not answer",
                  place.agent_socket.string() + ": " + last_error_);
    }
  }
  ~AgentLink() override { end(); }

  bool supervised() const override { return true; }

  void progress(std::int64_t step, Phase phase) override {
    step_.store(step, std::memory_order_relaxed);
    phase_.store(phase, std::memory_order_relaxed);
    moves_.fetch_add(1, std::memory_order_relaxed);
  }

  void computed(double seconds) override {
    compute_us_.store(static_cast<std::int64_t>(seconds * 1e6), std::memory_order_relaxed);
  }

  void waited(const Waits& waits) override {
    enqueue([this, waits] { tell(encode(RankWaits{place_.rank, place_.attempt, waits})); });
  }

  void doubt(std::int64_t step, const std::vector<int>& accused, const std::string& check,
             const std::string& why) override {
    send_and_wait(encode(RankDoubt{place_.rank, place_.attempt, step, accused, check, why}));
  }

  bool paused() const override {
    const bool on = paused_.load(std::memory_order_relaxed);
    if (on) pause_taken_.store(true, std::memory_order_relaxed);  // the next beat says so
    return on;
  }

  std::optional<Injection> take_injection() override {
    const std::scoped_lock lock(mutex_);
    return std::exchange(injection_, std::nullopt);
  }

  void restored(const Restored& from) override {
    enqueue([this, from] {
      restored_ = encode(RankRestored{place_.rank, place_.attempt, from});
      tell(*restored_);
    });
  }

  void vote(std::int64_t step, bool ok, const std::string& payload, double stall_s) override {
    std::string line = encode(
        RankVote{place_.rank, place_.attempt, step, ok, payload, static_cast<std::int64_t>(1e6 * stall_s)});
    enqueue([this, step, line = std::move(line)]() mutable {
      tell(line);
      votes_[step] = std::move(line);
    });
  }

  bool wait_commit(std::int64_t step, const Deadline& deadline) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, deadline.left(), [&] { return commit_outcomes_.contains(step); });
    const auto it = commit_outcomes_.find(step);
    return it != commit_outcomes_.end() && it->second;
  }

  std::optional<Drain> take_drain() override {
    const std::scoped_lock lock(mutex_);
    if (drain_)
      enqueue([this, stop = drain_->stop] { say(stop ? RankHeard::What::stop : RankHeard::What::save); });
    return std::exchange(drain_, std::nullopt);
  }

  void finished(const std::optional<FinalState>& state) override {
    send_and_wait(encode(RankFinished{place_.rank, place_.attempt, state}));
  }

  void failed(int exit_code, const std::string& why) noexcept override {
    try {
      send_and_wait(encode(RankFailed{place_.rank, place_.attempt, exit_code, why}));
    } catch (...) {  // the exit code shows the failure too
    }
  }

 private:
  void enqueue(std::function<void()> work) { loop_.post(std::move(work)); }

  /// The trainer has taken this order.
  void say(RankHeard::What what) {
    if (taken_orders_.insert(what).second) tell(encode(RankHeard{place_.rank, place_.attempt, what}));
  }

  /// Waits until the agent has received it: at most a minute, for an agent that is being restarted.
  void send_and_wait(std::string line) {
    {
      const std::scoped_lock lock(mutex_);
      taken_ = false;  // it may still be set for an earlier doubt
    }
    enqueue([this, line = std::move(line)] {
      beat();  // the heartbeat of the step that the message belongs to
      awaited_message_ = line;
      tell(line);
    });
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [this] { return taken_; });
  }

  void serve() {
    connect();
    const auto beats = loop_.every(beat_period, [this] { beat(); });
    loop_.run();
    // Sends what is queued: the destructor of the channel would drop it.
    channel_.reset();
  }

  void connect() {
    channel_ = loop_.dial({place_.agent_socket,
                           key_,
                           Millis(2000),
                           {[this] { opened(); }, [this](std::string_view line) { take(line); },
                            [this](const std::string& why) { lost(why); }},
                           RankId{place_.rank, place_.attempt}});
  }

  void opened() {
    tell(encode(Hello{Hello::Role::rank, place_.node, place_.term, place_.attempt, place_.rank, ::getpid()}));
    beat();
    if (restored_) tell(*restored_);
    for (const auto& [step, line] : votes_) tell(line);
    for (const auto what : taken_orders_) tell(encode(RankHeard{place_.rank, place_.attempt, what}));
    if (awaited_message_) tell(*awaited_message_);
    const std::scoped_lock lock(mutex_);
    connected_ = true;
    changed_.notify_all();
  }

  void lost(const std::string& why) {
    {
      const std::scoped_lock lock(mutex_);
      last_error_ = why;
    }
    retry_ = loop_.after(redial_pause, [this] { connect(); });
  }

  void take(std::string_view line) {
    std::string why;
    const auto message = decode<AgentToRank>(line, why);
    if (!message) return log::warn("a message of the agent was refused: {}", why);
    const std::scoped_lock lock(mutex_);
    std::visit(Overloaded{
                   [&](const CommitOutcome& outcome) {
                     commit_outcomes_[outcome.step] = outcome.durable;
                     votes_.erase(outcome.step);
                     if (!outcome.durable && place_.rank == 0)
                       log::warn("checkpoint {} was dropped: {}", outcome.step, outcome.why);
                   },
                   [&](const Drain& drain) {
                     // A restarted agent repeats the request. After a request to stop, later requests change
                     // nothing.
                     if (heard_ && (heard_->stop || *heard_ == drain)) return;
                     heard_ = drain_ = drain;
                     taken_orders_.erase(RankHeard::What::save);
                   },
                   [&](const Pause& pause) {
                     paused_.store(pause.on, std::memory_order_relaxed);
                     if (pause.on) return;
                     pause_taken_.store(false, std::memory_order_relaxed);
                     taken_orders_.erase(RankHeard::What::pause);
                   },
                   [&](const Inject& fault) {
                     injection_ = Injection{fault.fault, fault.seconds, fault.seed};
                   },
                   [&](const Taken&) { taken_ = true; },
                   [&](const NotSpeaker& refusal) {
                     if (!refusal.why.empty()) log::warn("{}", refusal.why);
                   },
               },
               *message);
    changed_.notify_all();
  }

  void beat() {
    tell(encode(RankProgress{place_.rank, place_.attempt, step_.load(std::memory_order_relaxed),
                             phase_.load(std::memory_order_relaxed),
                             compute_us_.load(std::memory_order_relaxed),
                             moves_.load(std::memory_order_relaxed)}));
    if (pause_taken_.load(std::memory_order_relaxed)) say(RankHeard::What::pause);
  }

  void tell(const std::string& line) {
    if (channel_ && channel_->open()) channel_->send(line);
  }

  void end() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  const RankEnv place_;
  const Key key_;
  RealLoop loop_;
  std::atomic<std::int64_t> step_{-1};
  std::atomic<Phase> phase_{Phase::starting};
  std::atomic<std::int64_t> compute_us_{0}, moves_{0};
  std::atomic<bool> paused_{false};
  mutable std::atomic<bool> pause_taken_{false};
  // Used by the loop's thread only:
  ChannelPtr channel_;
  Loop::Handle retry_;
  std::optional<std::string> restored_, awaited_message_;
  std::map<std::int64_t, std::string> votes_;  // without a commit outcome so far
  std::set<RankHeard::What> taken_orders_;     // by the trainer
  // Guarded by mutex_:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, bool> commit_outcomes_;
  std::optional<Drain> drain_, heard_;  // not yet returned to the trainer; the last that was received
  std::optional<Injection> injection_;
  bool connected_ = false, taken_ = false;
  std::string last_error_ = "no connection yet";
  std::thread thread_;
};

}  // namespace

std::unique_ptr<RankLink> make_agent_link(const RankEnv& place) { return std::make_unique<AgentLink>(place); }

}  // namespace holdfast::control
