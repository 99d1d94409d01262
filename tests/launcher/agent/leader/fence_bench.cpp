// What a PMIx fence costs the leader's loop: for scripts/bench/pmix_fence.sh, not a test. A real leader, and
// agents that answer it and hold no ranks, in another thread of this process; between them are real
// connections over loopback.
//   fence_bench FOLDER NODES RANKS_PER_NODE BYTES
// Each node's ranks publish BYTES each at a fence, and each node gets what all of them have published. Prints
// a line of JSON. Turns of a loop are in processor time, so that other programs on the machine do not count.
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "launcher/agent/leader/election.hpp"
#include "launcher/agent/leader/leader.hpp"
#include "src/base/as_size.hpp"
#include "src/base/descriptors.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using namespace control;

int free_tcp_port() {
  const files::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw system_error("no port is free", errno);
  return ntohs(address.sin_port);
}

class LoopOfAThread {
 public:
  ~LoopOfAThread() {
    loop.stop();
    thread_.join();
  }
  template <class Work>
  auto call(Work work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto result = task.get_future();
    loop.post([&task] { task(); });
    return result.get();
  }
  RealLoop loop;

 private:
  std::thread thread_{[this] { loop.run(); }};
};

struct Counts {
  std::atomic<int> started{0}, answered{0};
  std::atomic<std::size_t> bytes{0};
};

/// Used in its loop's thread only.
class RanklessAgent {
 public:
  RanklessAgent(RealLoop& loop, Roster::Node node, const Key& secret, Counts& counts)
      : node_(std::move(node)),
        counts_(counts),
        listener_(loop.listen({TcpAddress{"127.0.0.1", node_.port}, secret,
                               [this](ChannelPtr channel) {
                                 leader_ = std::move(channel);
                                 leader_->handle({nullptr, [this](std::string_view line) { hear(line); },
                                                  [this](const std::string&) { leader_.reset(); }});
                               }})),
        beats_(loop.every(Millis(200), [this] { beat(); })) {}
  void publish(int nodes, const std::string& bytes) {
    say(PmixFence{attempt_, "world", 1, nodes, true, bytes});
  }

 private:
  void say(const Message& message) {
    if (leader_) leader_->send(encode(message));
  }
  void beat() {
    Heartbeat beat{node_.name, attempt_, {}};
    for (int i = 0; i < ranks_; ++i) beat.ranks.push_back({first_rank_ + i, attempt_, -1, Phase::starting});
    say(beat);
  }
  void hear(std::string_view line) {
    std::string why;
    const auto message = decode<LeaderToAgent>(line, why);
    if (!message) return;
    if (const auto* clear = std::get_if<Clear>(&*message)) {
      attempt_ = clear->attempt;
      ranks_ = 0;
      say(Cleared{attempt_, 0, 0, {}});
      beat();
    }
    if (const auto* start = std::get_if<StartRanks>(&*message)) {
      ranks_ = start->ranks_per_node;
      first_rank_ = start->slot * ranks_;
      for (int i = 0; i < ranks_; ++i) say(RankStarted{first_rank_ + i, attempt_, 4000 + i});
      ++counts_.started;
    }
    if (const auto* fenced = std::get_if<PmixFenced>(&*message)) {
      counts_.bytes += fenced->published.size();
      ++counts_.answered;
    }
  }

  Roster::Node node_;
  Counts& counts_;
  int attempt_ = 0, ranks_ = 0, first_rank_ = 0;
  ChannelPtr leader_;
  Loop::Handle listener_, beats_;
};

bool soon(const std::function<bool()>& there) {
  for (const auto limit = Deadline::in(std::chrono::minutes(2)); !there();) {
    if (limit.passed()) return false;
    std::this_thread::sleep_for(Millis(5));
  }
  return true;
}

int measure(const files::fs::path& folder, int nodes, int ranks_per_node, std::size_t bytes) {
  raise_descriptor_limit();
  const RunDir run{folder};
  for (const auto& path : {run.terms(), run.events(), run.checkpoints(), run.logs()})
    files::fs::create_directories(path);
  config::RunConfig config;
  config.rank.command = {"some-program"};
  config.supervise.step_s = 3600;
  files::replace_atomically(run.config(), config::to_toml(config));
  Roster roster;
  roster.job = "7.0";
  roster.ranks_per_node = ranks_per_node;
  for (int n = 0; n < nodes; ++n) {
    roster.first_placement.push_back(n);
    roster.candidates.push_back(n);
    roster.nodes.push_back({"n" + std::to_string(n), "127.0.0.1", free_tcp_port(), "A"});
  }
  roster.batch_host = 0;
  const Key secret = random_key();
  std::string published(bytes * as_size(ranks_per_node), '\0');
  std::mt19937 random(1);
  for (char& byte : published) byte = static_cast<char>(random());

  Counts counts;
  LoopOfAThread of_leader, of_agents;
  std::vector<std::unique_ptr<RanklessAgent>> agents;
  of_agents.call([&] {
    for (const auto& node : roster.nodes)
      agents.push_back(std::make_unique<RanklessAgent>(of_agents.loop, node, secret, counts));
  });
  std::unique_ptr<Leader> leader;
  if (!take_term(run, 1, "n0")) throw Error(Exit::runtime, "the term is taken");
  of_leader.call([&] {
    leader = std::make_unique<Leader>(
        of_leader.loop, run, roster, config, secret, std::make_shared<slurm::FakeCluster>("n0"), 1, 0,
        start_term(run, roster, 1, 0), LeadershipState::Heard{},
        [](const std::string& why) { std::fprintf(stderr, "the leader resigned: %s\n", why.c_str()); });
  });
  const auto started = [&] { return counts.started == nodes; };
  const bool all_started = soon(started);
  std::this_thread::sleep_for(Millis(500));
  const double start_ms = 1000 * of_leader.call([&] { return of_leader.loop.longest_turn(); });
  of_agents.call([&] { return of_agents.loop.longest_turn(); });
  const auto begin = Clock::now();
  of_agents.call([&] {
    for (const auto& agent : agents) agent->publish(nodes, published);
  });
  const bool all_answered = soon([&] { return counts.answered == nodes; });
  const double took_s = std::chrono::duration<double>(Clock::now() - begin).count();
  const double fence_ms = 1000 * of_leader.call([&] { return of_leader.loop.longest_turn(); });
  of_leader.call([&] { leader.reset(); });
  of_agents.call([&] { agents.clear(); });
  std::cout << nlohmann::json{{"nodes", nodes},
                              {"ranks_per_node", ranks_per_node},
                              {"bytes_of_a_rank", bytes},
                              {"bytes_of_the_answer", counts.bytes / as_size(nodes)},
                              {"longest_turn_of_the_start_ms", start_ms},
                              {"longest_turn_of_the_fence_ms", fence_ms},
                              {"fence_s", took_s}}
                   .dump()
            << "\n";
  return all_started && all_answered ? 0 : 1;
}

}  // namespace
}  // namespace holdfast::launcher

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    return holdfast::launcher::measure(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                       holdfast::as_size(std::atoll(argv[4])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
