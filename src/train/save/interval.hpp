#pragma once
// How often to save: pure arithmetic over what was measured. Times in seconds.
//
//   C    training waits, per save                        T   from the end of the copy to the durable file
//   s    share of speed that steps lose meanwhile        M   mean time between failures that need this level
//   C_eff = C + s T                                      time that a save takes from training
//
// Lost per unit of time: C_eff / tau for saving, and (tau / 2 + T + restart) / M for work done again. The
// best tau is that of Young (Comm. ACM 17(9), 1974), sqrt(2 C_eff M), with the higher-order terms of Daly
// (Future Generation Computer Systems 22(3), 2006, eq. 37). T and the restart do not move it: they cost the
// same at any interval.
//
// Levels: each has its own interval, by the failures that no faster level survives (Benoit, Cavelan, Robert,
// Sun, "Optimal resilience patterns to cope with fail-stop and silent errors", 2017; Moody et al., SC'10):
// overhead = sum over levels of sqrt(2 C_l / M_l). Snapshots of the local level are ordered by
// checkpoint.local_every; here it only makes M longer.
#include <cstdint>
#include <optional>
#include <string>

namespace holdfast::train {

/// A smoothed measurement: each sample counts an eighth, the first one wholly.
class Smoothed {
 public:
  void add(double sample) { value_ = value_ ? *value_ + (sample - *value_) / 8 : sample; }
  bool known() const { return value_.has_value(); }
  double value() const { return value_.value_or(0); }

 private:
  std::optional<double> value_;
};

/// Failures come at a constant rate that is not known exactly: a Gamma distribution, of which one failure in
/// `mean_s` is assumed to have been seen, and to which those are added that were. The mean of it is used.
class FailureRate {
 public:
  /// `mean_s`: mean time between failures of the whole run, as expected beforehand. `share`: of all failures,
  /// the part that needs the shared level.
  explicit FailureRate(double mean_s, double share = 1) : time_(mean_s), share_(share) {}
  void lived(double seconds) { time_ += seconds; }
  void failed(double times = 1) { failures_ += times; }
  /// Failures per second that need the shared level.
  double shared() const { return share_ * failures_ / time_; }

 private:
  double failures_ = 1, time_, share_;
};

/// Mean time between failures of a node that nobody knows anything about: 5 failures in 1000 node-days, as
/// Kokolis et al. report of Meta's research clusters (arXiv 2410.21680).
inline constexpr double usual_node_mttf_h = 4800;
/// Where each node's state is also on another one, of all failures those that take both or the whole job are
/// assumed to be this part. Moody et al. (SC'10) recovered about 85 % from local and partner copies.
inline constexpr double share_beyond_peers = 0.15;

struct SaveCosts {
  double step_s = 0;     ///< a step while nothing is being written
  double stall_s = 0;    ///< C
  double persist_s = 0;  ///< T
  double slowdown = 0;   ///< s, 0 to 1
  double taken_s() const { return stall_s + slowdown * persist_s; }  ///< C_eff
};

struct Interval {
  std::int64_t steps = 1;  ///< between saves
  double overhead = 0;     ///< part of the time that saving takes
  double lost = 0;         ///< part of the time that failures take, restarts apart
  bool operator==(const Interval&) const = default;
};

/// The best number of steps: at least so many that a save is durable before the next one begins, and that
/// saving takes at most `max_overhead` of the time; never more than `most`.
Interval best_interval(const SaveCosts& costs, double failures_per_s, double max_overhead, std::int64_t most);

/// Learns the costs of a run as it goes, and plans again at every save.
class IntervalTuner {
 public:
  /// Begins with `every` steps.
  IntervalTuner(std::int64_t every, std::int64_t most, double max_overhead, const FailureRate& rate);

  /// A step took `seconds`, stalls apart; `saving`: something was being written meanwhile.
  void step(double seconds, bool saving);
  /// A save stalled training for `stall_s` and was durable `persist_s` after its copy.
  void saved(double stall_s, double persist_s);

  FailureRate& rate() { return rate_; }
  SaveCosts costs() const;
  const Interval& now() const { return now_; }
  /// "every 37 steps (12.3 s): a save stalls 0.020 s and takes 1.10 s in the background (steps 3 % slower);
  /// MTBF 4.2 h; 0.7 % of the time for saving, 0.4 % expected to be lost".
  std::string text() const;

 private:
  std::int64_t most_;
  double max_overhead_;
  FailureRate rate_;
  Interval now_;
  Smoothed quiet_s_, stall_s_, persist_s_, slowdown_;
  double excess_s_ = 0;  ///< of steps beside the save, over quiet ones
};

}  // namespace holdfast::train
