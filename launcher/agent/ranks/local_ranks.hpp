#pragma once
// The ranks of this node as their agent knows them: what each has reported that a (new) leader must be told.
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/agent/ranks/speaker.hpp"
#include "src/base/clock.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

struct LocalRank {
  int rank = -1, attempt = 0;
  pid_t pid = 0;                        ///< of its process; 0: there is none
  bool started = false, ended = false;  ///< it has become its program; it has ended
  bool asked = false;                   ///< to end, by SIGTERM
  control::RankProgress progress;
  std::optional<Clock::time_point> heard;  ///< when its process last said anything; nothing: it never did
  Clock::time_point moved;                 ///< when its step or phase last changed
  control::ChannelPtr link;                ///< the connection of its speaker, if it is a Holdfast program
  std::optional<ProcessId> speaker;        ///< the process that is heard as the rank
  bool told_others = false;                ///< that they are not heard
  std::optional<std::pair<double, control::RankMetrics>> metrics;  ///< the last, and when they came
  std::optional<control::RankRestored> restored;
  std::optional<control::RankDoubt> doubt;
  std::optional<control::RankFinished> finished;
  std::optional<control::RankFailed> failed;
  std::optional<control::RankExited> exited;
  bool lives() const { return pid > 0 && !ended; }
  std::set<control::RankHeard::What> heard_orders;  ///< those of now that it has taken
  bool linked() const { return link && link->open(); }
  /// It says where it is.
  bool reports() const {
    return heard && (progress.step >= 0 || progress.phase != control::Phase::starting || progress.moves > 0);
  }
  control::Loop::Handle grace;  ///< running while its death is known but not its exit code
};

class LocalRanks {
 public:
  /// The entry of a rank; a newer attempt replaces an older one's.
  LocalRank& at(int rank, int attempt);
  LocalRank* find(int rank, int attempt);
  void forget_older(int attempt);
  /// The progress that a rank reports periodically.
  static void take(LocalRank& rank, const control::RankProgress& said, Clock::time_point now);
  /// All that a leader that has just taken over must be told, in order; VoteMerger has the votes.
  std::vector<control::Message> state_messages() const;
  std::vector<control::RankProgress> live(int attempt) const;
  bool any_lives() const;  ///< also one that has not become its program yet
  /// Ranks of the attempt that have not ended.
  std::size_t living(int attempt) const;
  /// Sends it to every rank of the attempt that is connected.
  void tell(const control::Message& message, int attempt);
  /// A new order: nobody has taken it yet.
  void forget_heard(std::initializer_list<control::RankHeard::What> orders);
  auto begin() { return ranks_.begin(); }
  auto end() { return ranks_.end(); }
  auto begin() const { return ranks_.begin(); }
  auto end() const { return ranks_.end(); }

 private:
  std::map<int, LocalRank> ranks_;
};

}  // namespace holdfast::launcher
