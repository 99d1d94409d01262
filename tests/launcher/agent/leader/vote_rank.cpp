// A rank that computes nothing and votes: for scripts/bench/commit_votes.sh, not a test. Started by an agent,
// as
// `[rank] command`.
//   vote_rank FOLDER
// For K = 1, 2, ... it waits for FOLDER/K/at, which holds "STEP TIME SPREAD_S", sends the text of
// FOLDER/K/RANK as its vote on STEP at a moment of its own between TIME (s since the epoch) and TIME +
// SPREAD_S, waits for the commit outcome, and prints one line of JSON. Ends when STEP is 0.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/rank_env.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast {
namespace {

using namespace control;

/// Not with the client: a thousand heartbeat threads would be most of what a small machine does.
class VoteRank {
 public:
  VoteRank(const RankEnv& place, std::filesystem::path folder) : place_(place), folder_(std::move(folder)) {
    channel_ = loop_.dial(
        {place.agent_socket,
         read_secret(place.key_file, "the key of this rank"),
         Millis(60000),
         {[this] {
            channel_->send(encode(
                Hello{Hello::Role::rank, place_.node, place_.term, place_.attempt, place_.rank, ::getpid()}));
            look_ = loop_.every(Millis(1000), [this] { look(); });
          },
          [this](std::string_view line) { take(line); }, [this](const std::string&) { loop_.stop(); }},
         RankId{place.rank, place.attempt}});
    loop_.run();
  }

 private:
  void look() {
    const auto part = folder_ / std::to_string(number_);
    if (voting_ || !std::filesystem::exists(part / "at")) return;
    double at = 0, spread = 0;
    std::istringstream(files::read_text(part / "at")) >> step_ >> at >> spread;
    if (step_ == 0) return loop_.stop();
    payload_ = files::read_text(part / std::to_string(place_.rank));
    // An order of its own, the same each time.
    const double share = (place_.rank * 619 % place_.world) / static_cast<double>(place_.world);
    const double wait = std::max(0.0, at + spread * share - unix_seconds());
    vote_ = loop_.after(Millis(static_cast<std::int64_t>(1000 * wait)), [this] {
      const std::string line = encode(RankVote{place_.rank, place_.attempt, step_, true, payload_});
      voted_ = unix_seconds();
      channel_->send(line);
    });
    voting_ = true;
  }
  void take(std::string_view line) {
    std::string why;
    const auto message = decode<AgentToRank>(line, why);
    const auto* outcome = message ? std::get_if<CommitOutcome>(&*message) : nullptr;
    if (!outcome || outcome->step != step_) return;
    std::ostringstream said;
    said.precision(17);
    said << R"({"rank":)" << place_.rank << R"(,"step":)" << step_ << R"(,"voted":)" << voted_
         << R"(,"heard":)" << unix_seconds() << R"(,"bytes":)" << payload_.size() << R"(,"durable":)"
         << (outcome->durable ? "true" : "false") << "}\n";
    std::cout << said.str() << std::flush;
    ++number_;
    voting_ = false;
  }

  const RankEnv place_;
  const std::filesystem::path folder_;
  RealLoop loop_;
  ChannelPtr channel_;
  Loop::Handle look_, vote_;
  int number_ = 1;
  std::int64_t step_ = 0;
  bool voting_ = false;
  double voted_ = 0;
  std::string payload_;
};

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const auto place = holdfast::rank_env_from_environment();
  if (argc != 2 || !place) return 2;
  try {
    holdfast::VoteRank(*place, argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
