#include "src/train/common/agent_link.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "client/trainer.h"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/control/message.hpp"
#include "src/control/secret.hpp"

namespace holdfast::train {
namespace {

static_assert(static_cast<int>(control::Phase::forward) == HF_FORWARD &&
              static_cast<int>(control::Phase::paused) == HF_PAUSED);

constexpr std::int64_t taken_ms = 60'000;  // an agent may be restarted meanwhile

class AgentLink final : public control::RankLink {
 public:
  AgentLink(const RankEnv& place, Millis limit) : rank_(place.rank), attempt_(place.attempt) {
    hfc_place here{};
    here.who.rank = place.rank;
    here.who.attempt = place.attempt;
    here.term = place.term;
    std::ranges::copy(control::read_secret(place.key_file, "the key of this rank"), here.who.key);
    const std::string socket = place.agent_socket.string();
    std::string why = "its path is too long for a socket";
    if (socket.copy(here.who.socket, sizeof here.who.socket - 1) == socket.size() &&
        open(here, place, limit, why))
      return;
    hf_close();
    throw Error(Exit::transient, "the agent on this node does not answer", socket + ": " + why);
  }
  AgentLink(const AgentLink&) = delete;
  ~AgentLink() override { hf_close(); }

  bool supervised() const override { return true; }
  void progress(std::int64_t step, control::Phase phase) override {
    hf_at(step, static_cast<hf_phase>(phase));
  }
  void computed(double seconds) override { hfc_computed(seconds); }
  void waited(const control::Waits& waits) override {
    say(HFC_ONCE, control::RankWaits{rank_, attempt_, waits});
  }
  void restored(const control::Restored& from) override {
    say(HFC_RESTORED, control::RankRestored{rank_, attempt_, from});
  }

  void doubt(std::int64_t step, const std::vector<int>& accused, const std::string& check,
             const std::string& why) override {
    say_and_wait(control::RankDoubt{
        .rank = rank_, .attempt = attempt_, .step = step, .accused = accused, .check = check, .why = why});
  }
  void vote(std::int64_t step, bool ok, const std::string& payload, double stall_s) override {
    const control::RankVote vote{.rank = rank_,
                                 .attempt = attempt_,
                                 .step = step,
                                 .ok = ok,
                                 .payload = payload,
                                 .stall_us = static_cast<std::int64_t>(1e6 * stall_s)};
    say(HFC_VOTE, vote, step);
  }
  bool wait_commit(std::int64_t step, const Deadline& deadline) override {
    return hfc_wait_outcome(step, deadline.left_ms()) == HF_DURABLE;
  }

  control::Orders take_orders() override {
    hf_order order{};
    hf_orders(&order);
    control::Orders out;
    if (order.save) out.drain = control::Drain{order.stop != 0, order.reason};
    out.pause = order.pause != 0;
    return out;
  }
  std::optional<control::Injection> take_injection() override {
    const std::scoped_lock lock(mutex_);
    return std::exchange(injection_, std::nullopt);
  }

  void finished(const std::optional<control::FinalState>& state) override {
    say_and_wait(control::RankFinished{rank_, attempt_, state});
  }
  void failed(int exit_code, const std::string& why) noexcept override {
    try {
      say_and_wait(control::RankFailed{rank_, attempt_, exit_code, why});
    } catch (...) {  // the exit code shows the failure too
    }
  }

 private:
  bool open(hfc_place& here, const RankEnv& place, Millis limit, std::string& why) {
    place.node.copy(here.node, sizeof here.node - 1);
    char text[256] = "there is no thread for its connection";
    const bool open =
        hfc_open(&here, {&AgentLink::hear, this}) && hfc_wait_connected(limit.count(), text, sizeof text);
    why = text;
    return open;
  }

  void say(hfc_kind kind, const control::Message& message, std::int64_t step = 0) {
    hfc_say(kind, step, control::encode(message).c_str());
  }
  void say_and_wait(const control::Message& message) {
    say(HFC_LAST, message);
    hfc_wait_taken(taken_ms);
  }

  /// In the client's thread, under its lock: what the client has no call for.
  static void hear(void* self, const char* line, std::size_t length) {
    std::string why;
    const auto message = control::decode<control::AgentToRank>({line, length}, why);
    if (!message) return log::warn("a message of the agent was refused: {}", why);
    auto& link = *static_cast<AgentLink*>(self);
    if (const auto* outcome = std::get_if<control::CommitOutcome>(&*message)) {
      if (!outcome->durable && link.rank_ == 0)
        log::warn("checkpoint {} was dropped: {}", outcome->step, outcome->why);
    } else if (const auto* fault = std::get_if<control::Inject>(&*message)) {
      const std::scoped_lock lock(link.mutex_);
      link.injection_ = control::Injection{fault->fault, fault->seconds, fault->seed};
    }
  }

  const int rank_, attempt_;
  std::mutex mutex_;
  std::optional<control::Injection> injection_;  ///< guarded by mutex_
};

}  // namespace

std::unique_ptr<control::RankLink> make_rank_link(const std::optional<RankEnv>& place, Millis limit) {
  if (!place || place->agent_socket.empty()) return std::make_unique<control::RankLink>();
  return std::make_unique<AgentLink>(*place, limit);
}

}  // namespace holdfast::train
