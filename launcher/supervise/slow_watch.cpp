// SlowWatch::find() names one case after the other: first links, as their signs say, then ranks that compute
// late, then networks. found_ keeps it until it is taken.
// - Stragglers smooths the compute time of each rank; one step counts as 4 medians at most. Median and spread
//   are computed anew after as many reports as there are ranks. A rank is late if its time exceeds the median
//   by more than straggler_ratio, the spread among ranks and its own jitter allow.
// - SlowNetworks adds up a window until all ranks have reported it, and then judges it; a report of a newer
//   window discards one that is not complete. A node whose ranks compute late is passed over, and asked about
//   again.
//
// Who was named is not named again before its value has been near() the median. A new attempt forgets what
// was measured of ranks and slots; links that were found and not taken stay.
#include "launcher/supervise/slow_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

constexpr double newest_weight = 0.2;  // in the smoothed time
constexpr double max_of_one_step = 4;  // in medians: one slow step alone makes no straggler

/// The lower of the two middle values: where half of the world is slow, the other half is the norm.
double lower_median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// And the usual distance from it. `values` are overwritten.
std::pair<double, double> median_and_spread(std::vector<double>& values) {
  const double median = lower_median(values);
  for (double& value : values) value = std::abs(value - median);
  return {median, lower_median(values)};
}

/// Below this a rank or a node is near the median again.
double near(double ratio, double median) { return 0.5 * (1 + ratio) * median; }

}  // namespace

// --- compute

Stragglers::Stragglers(const config::Supervise& limits, int world)
    : ratio_(limits.straggler_ratio), ranks_(as_size(world)) {
  sorted_.reserve(ranks_.size());
}

void Stragglers::computed(int rank, std::int64_t step, double seconds) {
  expects(rank >= 0 && as_size(rank) < ranks_.size(), "the rank is one of the world");
  Own& own = ranks_[rank];
  if (step == own.step || !(seconds > 0)) return;
  if (own.step < 0) own.smoothed = seconds;
  own.step = step;
  if (median_ > 0) seconds = std::min(seconds, max_of_one_step * median_);
  own.jitter += newest_weight * (std::abs(seconds - own.smoothed) - own.jitter);
  own.smoothed += newest_weight * (seconds - own.smoothed);
  if (++reports_ >= ranks_.size()) update_median();
  if (median_ <= 0) return;
  const double above = own.smoothed - median_;
  if (own.smoothed > ratio_ * median_ && above > noise * spread_ && above > own.jitter) {
    if (++own.above >= steps_in_a_row && !own.reported) {
      own.reported = true;
      found_.push_back(rank);
    }
  } else {
    own.above = 0;
    if (own.smoothed < near(ratio_, median_)) own.reported = false;
  }
}

/// Called once per round, which is cheap for any world.
void Stragglers::update_median() {
  reports_ = 0;
  sorted_.clear();
  for (const Own& own : ranks_)
    if (own.step >= 0) sorted_.push_back(own.smoothed);
  std::tie(median_, spread_) = median_and_spread(sorted_);
}

std::optional<Straggler> Stragglers::take() {
  if (found_.empty()) return std::nullopt;
  const int rank = found_.front();
  found_.erase(found_.begin());
  return Straggler{rank, ranks_[rank].smoothed / median_};
}

// --- network

SlowNetworks::SlowNetworks(const config::Supervise& limits, int slots, int ranks_per_node)
    : ratio_(limits.straggler_ratio),
      ranks_per_node_(ranks_per_node),
      window_(as_size(slots)),
      slots_(as_size(slots)) {}

void SlowNetworks::waited(int rank, const control::Waits& waits) {
  const std::size_t slot = as_size(rank / ranks_per_node_);
  expects(rank >= 0 && slot < slots_.size(), "the rank is one of the world");
  if (waits.step < step_ || slots_.size() < 3) return;
  if (waits.step > step_) {
    step_ = waits.step;
    reports_ = 0;
    for (Window& window : window_) window = {.of = std::vector<double>(slots_.size())};
  }
  constexpr double to_s = 1e-6 / control::Waits::window;  // of a step
  Window& own = window_[slot];
  ++own.ranks;
  own.awaits_s += to_s * static_cast<double>(waits.median_us);
  own.step_s += to_s * static_cast<double>(waits.window_us);
  own.names_all = own.names_all && waits.longest.size() >= as_size(waits.nodes);
  for (const auto& [peer, us] : waits.longest)
    if (const std::size_t of = as_size(peer / ranks_per_node_); peer >= 0 && of < slots_.size() && of != slot)
      own.of[of] += to_s * static_cast<double>(us);
  if (++reports_ == slots_.size() * as_size(ranks_per_node_)) judge();
}

/// All of a window has been reported.
void SlowNetworks::judge() {
  std::vector<double> marks, awaited;
  double step_s = 0;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    awaited.clear();  // by each of its peers; one that names not all of its own awaits others as its median
    for (std::size_t peer = 0; peer < slots_.size(); ++peer) {
      const Window& window = window_[peer];
      if (peer == slot || (window.names_all && window.of[slot] <= 0)) continue;
      awaited.push_back((window.of[slot] > 0 ? window.of[slot] : window.awaits_s) / window.ranks);
    }
    const Window& own = window_[slot];
    marks.push_back(awaited.empty() ? 0 : std::min(lower_median(awaited), own.awaits_s / own.ranks));
    step_s = std::max(step_s, own.step_s / own.ranks);
  }
  std::vector<double> sorted = marks;
  double spread = 0;
  std::tie(median_s_, spread) = median_and_spread(sorted);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Own& own = slots_[slot];
    own.mark_s = marks[slot];
    const double above = own.mark_s - median_s_;
    if (median_s_ > 0 && own.mark_s > ratio_ * median_s_ && above > part_of_step * step_s &&
        above > noise * spread) {
      ++own.above;
    } else {
      own.above = 0;
      if (own.mark_s < near(ratio_, median_s_)) own.reported = false;
    }
  }
}

// --- all of them

SlowWatch::SlowWatch(const config::Supervise& limits, std::vector<std::string> names,
                     const std::vector<int>& placement, int ranks_per_node)
    : limits_(limits),
      names_(std::move(names)),
      ranks_per_node_(ranks_per_node),
      placement_(placement),
      compute_(limits, static_cast<int>(placement.size()) * ranks_per_node),
      network_(limits, static_cast<int>(placement.size()), ranks_per_node) {}

void SlowWatch::new_attempt(const std::vector<int>& placement) {
  placement_ = placement;
  const int slots = static_cast<int>(placement.size());
  compute_ = Stragglers(limits_, slots * ranks_per_node_);
  network_ = SlowNetworks(limits_, slots, ranks_per_node_);
  if (found_ && found_->what != "link") found_.reset();
}

void SlowWatch::link_slow(int node, std::int64_t percent, const std::string& text) {
  links_.push_back({"link", -1, node, 100.0 / static_cast<double>(std::clamp<std::int64_t>(percent, 1, 100)),
                    fmt::format("a link of {} has become slower: {}", names_[node], text)});
}

bool SlowWatch::computes_late(int slot) const {
  for (int rank = slot * ranks_per_node_; rank < (slot + 1) * ranks_per_node_; ++rank)
    if (compute_.ratio(rank) > limits_.straggler_ratio) return true;
  return false;
}

std::optional<SlowNode> SlowWatch::find() {
  if (!links_.empty()) {
    SlowNode link = std::move(links_.front());
    links_.erase(links_.begin());
    return link;
  }
  if (const auto late = compute_.take()) {
    const int node = placement_[late->rank / ranks_per_node_];
    return SlowNode{"compute", late->rank, node, late->ratio,
                    fmt::format("rank {} on {} computes {:.2f} times as long as the median rank", late->rank,
                                names_[node], late->ratio)};
  }
  const auto slow = network_.take([this](int slot) { return computes_late(slot); });
  if (!slow) return std::nullopt;
  const int node = placement_[slow->slot];
  return SlowNode{
      "network", -1, node, slow->ratio,
      fmt::format(
          "messages to and from {} are awaited for {:.3g} ms a step, {:.2f} times as long as those of "
          "the median node ({:.3g} ms); its ranks do not compute late",
          names_[node], 1e3 * slow->mark_s, slow->ratio, 1e3 * slow->median_s)};
}

bool SlowWatch::any() {
  if (!found_) found_ = find();
  return found_.has_value();
}

std::optional<SlowNode> SlowWatch::take() {
  any();
  return std::exchange(found_, std::nullopt);
}

}  // namespace holdfast::launcher
