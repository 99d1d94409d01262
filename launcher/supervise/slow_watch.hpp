#pragma once
// Ranks and nodes that slow the others down: which of them computes late, and whose network is slow. Pure.
//
// Compared are the facts that ranks report, always with the median of the others, so that a load that all
// have alike names nobody:
//
//   compute   a rank's own seconds of a step, by the clock, without its waits for others
//   network   how long messages between nodes were awaited, in windows of control::Waits::window steps
//   link      what an agent reads of its node's links: a sign link_slow is evidence in itself
//
// A rank that computes late is awaited by all, and awaits nobody; behind a slow network a node is awaited and
// awaits the others as long. So the mark of a node's network is the smaller one of two times: what the median
// of its peers was awaited by it, and what it was awaited by the median of them. That of a slow node's
// partner stays small, too, though others wait for it in turn: it waits for one node only. A node one of
// whose ranks computes late is not named for its network.
//
// Named is who is above its threshold many times in a row: `steps_in_a_row` of compute, `windows_in_a_row` of
// network. A hiccup, however long, is one of them.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/config/run_config.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::launcher {

struct Straggler {
  int rank = -1;
  double ratio = 0;  ///< its compute time over the median
};
/// Compares the ranks' own compute times of the newest steps.
class Stragglers {
 public:
  static constexpr int steps_in_a_row = 10;
  static constexpr double noise = 4;  ///< times the usual distance from the median, beside straggler_ratio

  Stragglers(const config::Supervise& limits, int world);
  /// The same step may be reported again, as heartbeats do; 0 seconds: unknown.
  void computed(int rank, std::int64_t step, double seconds);
  /// A rank that has been far above the median for many steps in a row, and slower than noise explains.
  /// Reported once, until it has been near the median again.
  std::optional<Straggler> take();
  bool any() const { return !found_.empty(); }  ///< there is one to be taken
  /// Its compute time over the median now; 0: not known.
  double ratio(int rank) const { return median_ > 0 ? ranks_[rank].smoothed / median_ : 0; }

 private:
  struct Own {
    std::int64_t step = -1;
    double smoothed = 0;
    double jitter = 0;  ///< smoothed distance of a step from `smoothed`
    int above = 0;      ///< steps in a row
    bool reported = false;
  };
  void update_median();

  double ratio_;
  std::vector<Own> ranks_;
  std::vector<double> sorted_;  ///< for the median, kept to save the allocation
  double median_ = 0;           ///< of the smoothed times; 0: not known yet
  double spread_ = 0;           ///< usual distance of a rank from it
  std::size_t reports_ = 0;     ///< reports since median_ was computed
  std::vector<int> found_;      ///< to be taken
};

struct SlowNetwork {
  int slot = -1;
  double ratio = 0;                 ///< its mark over the median
  double mark_s = 0, median_s = 0;  ///< a step
};
/// Compares how long messages to and from nodes were awaited. Less than three nodes are never compared: of
/// two, both await the same.
class SlowNetworks {
 public:
  static constexpr int windows_in_a_row = 3;
  static constexpr double part_of_step = 0.1;  ///< lost at least, of the time from a step to the next, ...
  static constexpr double noise = 4;           ///< ... and so many times the usual distance from the median

  SlowNetworks(const config::Supervise& limits, int slots, int ranks_per_node);
  /// A window counts when all ranks have reported it.
  void waited(int rank, const control::Waits& waits);
  /// A node that has been above the thresholds for many windows in a row. Reported once, until it has been
  /// near the median again. One that is `excused` stays where it is.
  template <class Excused>
  std::optional<SlowNetwork> take(Excused excused) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      Own& own = slots_[slot];
      if (own.above < windows_in_a_row || own.reported || excused(static_cast<int>(slot))) continue;
      own.reported = true;
      return SlowNetwork{static_cast<int>(slot), own.mark_s / median_s_, own.mark_s, median_s_};
    }
    return std::nullopt;
  }

 private:
  /// Sums over the ranks of a node, in seconds of a step.
  struct Window {
    int ranks = 0;
    double awaits_s = 0;  ///< the median of its peers
    double step_s = 0;
    bool names_all = true;   ///< of its peers
    std::vector<double> of;  ///< by slot; 0: not named
  };
  struct Own {
    double mark_s = 0;
    int above = 0;  ///< windows in a row
    bool reported = false;
  };
  void judge();

  double ratio_;
  int ranks_per_node_;
  std::int64_t step_ = -1;  ///< of the window that is being reported
  std::size_t reports_ = 0;
  std::vector<Window> window_;  ///< by slot
  std::vector<Own> slots_;
  double median_s_ = 0;
};

/// What is found, for the record.
struct SlowNode {
  std::string what;  ///< "compute", "network" or "link"
  int rank = -1;     ///< the one that computes late
  int node = -1;
  double ratio = 0;  ///< how many times as long as the median it takes; of a link, its rate over what is left
  std::string evidence;
};

class SlowWatch {
 public:
  /// `names`: of all nodes of the roster; `placement`: slot -> node.
  SlowWatch(const config::Supervise& limits, std::vector<std::string> names,
            const std::vector<int>& placement, int ranks_per_node);
  /// Of earlier ranks nothing counts; what was found of links stays.
  void new_attempt(const std::vector<int>& placement);

  void computed(int rank, std::int64_t step, double seconds) { compute_.computed(rank, step, seconds); }
  void waited(int rank, const control::Waits& waits) { network_.waited(rank, waits); }
  /// A sign link_slow of a node: `percent` of the link's rate are left, and `text` says of which.
  void link_slow(int node, std::int64_t percent, const std::string& text);

  /// Those that have been found and were not taken.
  std::optional<SlowNode> take();
  bool any();

 private:
  std::optional<SlowNode> find();
  bool computes_late(int slot) const;

  config::Supervise limits_;
  std::vector<std::string> names_;
  int ranks_per_node_;
  std::vector<int> placement_;
  Stragglers compute_;
  SlowNetworks network_;
  std::vector<SlowNode> links_;
  std::optional<SlowNode> found_;
};

}  // namespace holdfast::launcher
