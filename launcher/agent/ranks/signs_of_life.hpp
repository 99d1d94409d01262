#pragma once
// Does a rank that does not report do anything? From what its agent sees of it (outside_look.hpp). Pure.
//
//   word                    a sign of life when
//   heartbeat               its heartbeat file was touched; once it was, nothing else counts
//   output                  it printed anything
//   network, files, links   more bytes moved than noise: `noise` a second, and `rare` of the most that
//                           was seen, of which half is forgotten in `fades_s`
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ranks/outside_look.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

class SignsOfLife {
 public:
  /// Keep-alives and wake-ups of a program that waits; bytes a second.
  static constexpr double noise = 8 << 10, rare = 1e-3, fades_s = 600;

  void forget() { ranks_.clear(); }  ///< another attempt
  /// A look begins, as one does every second. If it is late by seconds, nobody has looked, and the job may
  /// have been suspended: that time is no silence. `now` in seconds of the looks' clock.
  void look_begins(double now);
  /// Ranks that are not among them any more have ended.
  void take(const Growths& growths);
  /// They cannot be looked at: a look hangs.
  void cannot_look(const std::vector<WatchedRank>& ranks, double now);
  /// Of ranks that were looked at twice, or that cannot be; none after a look that saw nothing, which is no
  /// silence.
  std::vector<control::RankSeen> seen(int attempt, double now) const;

 private:
  struct Bytes {
    double most = 0;  ///< a second
    bool live(std::int64_t bytes, double seconds);
  };
  struct Rank {
    double since = 0;  ///< the last sign of life, or the first look
    std::string sign;  ///< the last; "": none yet
    bool touches = false;
    Bytes files, network, rdma, nvlinks;
    double cpu_share = 0;
    char state = '?';
  };
  std::map<int, Rank> ranks_;
  std::optional<double> began_at_;  ///< the last look
  bool blind_ = false;              ///< it saw nothing
};

}  // namespace holdfast::launcher
