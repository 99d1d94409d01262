// The Leader listens, writes its place into leader.json, and waits for the peers until all have come or
// plan.join is over. begin() draws up the rounds (pairs.hpp). For each of them next_round() sends every pair
// its orders: one end serves, the other one connects and measures. When both ends of all pairs have answered,
// the next round begins; if not all pairs could meet, up to two more rounds look into slow pairs (regroup()).
// finish() tells all peers to end.
//
// A pair without an answer when the time of its round is over counts as cut off, and so do the pairs of a
// peer that has disconnected; so every pair of a round that ends gets one result, and the check goes on.
// Answers to an earlier round are ignored. The whole check ends after plan.limit, with what is known.
//
// follow_rounds() carries out one order after the other in its loop, and blocks in it while it measures.
#include "launcher/health/pair_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int max_nodes_for_all = 16, few_rounds = 6, max_regroups = 2;
constexpr int port_tries = 50, max_link_ms = 60000;
constexpr Millis dial_limit{5000};
constexpr Millis serve_margin{500}, round_margin{2000};  ///< beyond the limit of a measurement

fs::path secret_file(const fs::path& folder) { return folder / "secret"; }
fs::path leader_file(const fs::path& folder) { return folder / "leader.json"; }

json parse(std::string_view text) { return json_from(text); }

/// Text and numbers of a message; "" and 0 when they are missing or of another type.
std::string text_in(const json& j, const char* name) {
  return j.is_object() && j.contains(name) && j[name].is_string() ? j[name].get<std::string>() : "";
}
double number_in(const json& j, const char* name) {
  return j.is_object() && j.contains(name) && j[name].is_number() ? j[name].get<double>() : 0;
}

class Leader {
 public:
  Leader(const std::vector<std::string>& nodes, const RoundsPlan& plan) : asked_(nodes), plan_(plan) {}

  NetworkResult lead(const fs::path& folder, const std::string& host) {
    const auto secret = control::read_secret(secret_file(folder));
    const int port = listen(secret);
    files::replace_atomically(leader_file(folder), json{{"host", host}, {"port", port}}.dump());
    timer_ = loop_.after(plan_.join, [this] { begin(); });
    const auto end = loop_.after(plan_.limit, [this] { loop_.stop(); });
    loop_.run();
    for (const auto& name : asked_)
      if (std::find(result_.nodes.begin(), result_.nodes.end(), name) == result_.nodes.end())
        result_.absent.push_back(name);
    result_.findings = judge_pairs(static_cast<int>(result_.nodes.size()), result_.pairs);
    return std::move(result_);
  }

 private:
  struct Peer {
    control::ChannelPtr channel;
    std::string address;
    int port = 0;
  };

  int listen(const control::Key& secret) {
    std::mt19937 random{std::random_device{}()};
    for (int i = 0;; ++i) {
      const int port =
          std::uniform_int_distribution<int>(20000, 29999)(random);  // below what kernels hand out
      try {
        listener_ = std::make_unique<control::Listener>(
            loop_, control::TcpAddress{"", port}, secret,
            [this](control::ChannelPtr channel) { accept(std::move(channel)); });
        return port;
      } catch (const Error&) {
        if (i + 1 == port_tries) throw;
      }
    }
  }

  void accept(control::ChannelPtr channel) {
    const auto* who = channel.get();
    unidentified_.push_back(channel);
    channel->handle({nullptr, [this, who](std::string_view text) { identify(who, parse(text)); }, nullptr});
  }

  void identify(const control::Channel* who, const json& message) {
    const auto it = std::find_if(unidentified_.begin(), unidentified_.end(),
                                 [&](const auto& channel) { return channel.get() == who; });
    if (it == unidentified_.end()) return;
    const auto channel = *it;
    unidentified_.erase(it);
    const std::string name = text_in(message, "node");
    if (begun_ || std::find(asked_.begin(), asked_.end(), name) == asked_.end()) return;
    peers_[name] = {channel, text_in(message, "address"), static_cast<int>(number_in(message, "port"))};
    channel->handle({nullptr, [this, name](std::string_view text) { hear(name, parse(text)); },
                     [this, name](const std::string& why) { lose(name, why); }});
    if (peers_.size() == asked_.size()) loop_.post([this] { begin(); });
  }

  void begin() {
    if (begun_) return;
    begun_ = true;
    for (const auto& name : asked_)
      if (peers_.contains(name)) result_.nodes.push_back(name);
    const int nodes = static_cast<int>(result_.nodes.size());
    rounds_ = tournament(nodes);
    const int limit = plan_.rounds > 0 ? plan_.rounds : nodes <= max_nodes_for_all ? nodes : few_rounds;
    all_meet_ = static_cast<int>(rounds_.size()) <= limit;
    if (!all_meet_) rounds_.resize(limit);
    next_round();
  }

  void next_round() {
    if (result_.rounds == static_cast<int>(rounds_.size()) && !all_meet_ && regroups_ < max_regroups) {
      ++regroups_;
      if (auto more = regroup(static_cast<int>(result_.nodes.size()), result_.pairs); !more.empty())
        rounds_.push_back(std::move(more));
    }
    if (result_.rounds == static_cast<int>(rounds_.size())) return finish();
    const auto& round = rounds_[result_.rounds++];
    open_.insert(round.begin(), round.end());
    for (const auto& pair : round) start(pair);
    timer_ = loop_.after(plan_.link + round_margin, [this] { end_round(); });
    if (waiting_.empty()) loop_.post([this, now = result_.rounds] { end_round_if(now); });
  }

  void start(const Pair& pair) {
    const auto server = peers_.find(name_of(pair.first)), client = peers_.find(name_of(pair.second));
    if (server == peers_.end() || client == peers_.end()) return;
    server->second.channel->send(
        json{{"round", result_.rounds}, {"limit_ms", plan_.link.count()}, {"serve", true}}.dump());
    client->second.channel->send(json{
        {"round", result_.rounds},
        {"limit_ms", plan_.link.count()},
        {"address", server->second.address},
        {"port",
         server->second.port}}.dump());
    waiting_.insert(server->first), waiting_.insert(client->first);
  }

  void hear(const std::string& name, const json& message) {
    if (number_in(message, "round") != result_.rounds) return;
    for (const auto& pair : std::set<Pair>(open_))  // the end that connected has measured
      if (name_of(pair.second) == name && message.contains("bytes_s"))
        close(pair,
              {number_in(message, "bytes_s"), number_in(message, "latency_s"), text_in(message, "why")});
    answered(name);
  }

  void lose(const std::string& name, const std::string& why) {
    peers_.erase(name);
    for (const auto& pair : std::set<Pair>(open_))
      if (name_of(pair.first) == name || name_of(pair.second) == name)
        close(pair, {0, 0, name + " has disconnected: " + why});
    answered(name);
  }

  /// A round is over when both ends of every pair have answered: a peer that still serves could not receive
  /// the next order.
  void answered(const std::string& name) {
    if (waiting_.erase(name) > 0 && waiting_.empty())
      loop_.post([this, now = result_.rounds] { end_round_if(now); });
  }
  void end_round_if(int round) {
    if (round == result_.rounds && waiting_.empty()) end_round();
  }
  void end_round() {
    for (const auto& pair : std::set<Pair>(open_)) close(pair, {0, 0, "no answer in time"});
    waiting_.clear();
    next_round();
  }

  void close(const Pair& pair, const LinkResult& link) {
    open_.erase(pair);
    result_.pairs.push_back({pair, link.bytes_s, link.latency_s, link.why});
  }

  void finish() {
    for (auto& [name, peer] : peers_) {
      peer.channel->send(json{{"end", true}}.dump());
      peer.channel->close();
    }
    // One more turn of the loop sends what is queued.
    timer_ = loop_.after(Millis(50), [this] { loop_.stop(); });
  }

  const std::string& name_of(int index) const { return result_.nodes[index]; }

  const std::vector<std::string> asked_;
  const RoundsPlan plan_;
  control::RealLoop loop_;
  std::unique_ptr<control::Listener> listener_;
  std::vector<control::ChannelPtr> unidentified_;
  std::map<std::string, Peer> peers_;
  control::Loop::Handle timer_;
  std::vector<Round> rounds_;
  std::set<Pair> open_;            ///< pairs of this round without a result
  std::set<std::string> waiting_;  ///< peers that have not answered their order yet
  bool begun_ = false, all_meet_ = true;
  int regroups_ = 0;
  NetworkResult result_;
};

}  // namespace

NetworkResult lead_rounds(const fs::path& folder, const std::string& host,
                          const std::vector<std::string>& nodes, const RoundsPlan& plan) {
  return Leader(nodes, plan).lead(folder, host);
}

bool follow_rounds(const fs::path& folder, const std::string& node, const std::string& address,
                   Millis limit) {
  const auto secret = control::read_secret(secret_file(folder));
  const auto place = parse(files::read_text(leader_file(folder)));
  const LinkPort port;
  control::RealLoop loop;
  bool ended = false;
  control::ChannelPtr channel;
  LinkPlan plan;
  const auto carry_out = [&](const json& order) {
    if (order.contains("end")) {
      ended = true;
      return loop.stop();
    }
    json answer{{"round", number_in(order, "round")}};
    plan.limit = Millis(std::clamp(static_cast<int>(number_in(order, "limit_ms")), 1, max_link_ms));
    // Both directions and the first chunks fit into the limit several times.
    plan.seconds = std::min(LinkPlan{}.seconds, static_cast<double>(plan.limit.count()) / 1000 / 10);
    if (order.contains("serve")) {
      answer["why"] = port.serve(secret, plan.limit + serve_margin);
    } else {
      const auto result =
          measure_link(text_in(order, "address"), static_cast<int>(number_in(order, "port")), secret, plan);
      answer.update({{"bytes_s", result.bytes_s}, {"latency_s", result.latency_s}, {"why", result.why}});
    }
    channel->send(answer.dump());
  };
  channel = control::dial(
      loop, control::TcpAddress{text_in(place, "host"), static_cast<int>(number_in(place, "port"))}, secret,
      dial_limit,
      {[&] {
         channel->send(json{{"node", node}, {"address", address}, {"port", port.port()}}.dump());
       },
       [&](std::string_view text) { carry_out(parse(text)); }, [&](const std::string&) { loop.stop(); }});
  const auto end = loop.after(limit, [&] { loop.stop(); });
  loop.run();
  return ended;
}

}  // namespace holdfast::launcher
