#pragma once
// Virtual time: one seed, one schedule.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace holdfast::sim {

/// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
  }
  bool chance(double p) { return between(0, 1) < p; }

 private:
  std::uint64_t state_;
};

class Timeline {
 public:
  double now = 0;  ///< seconds
  void at(double when, std::function<void()> what) {
    queue_.push_back({std::max(when, now), count_++, std::move(what)});
    std::push_heap(queue_.begin(), queue_.end(), later);
  }
  void after(double seconds, std::function<void()> what) { at(now + seconds, std::move(what)); }
  /// The next event; events of the same time happen in the order in which they were added.
  void step() {
    std::pop_heap(queue_.begin(), queue_.end(), later);
    Item item = std::move(queue_.back());
    queue_.pop_back();
    now = item.when;
    item.what();
  }
  bool empty() const { return queue_.empty(); }
  double next() const { return queue_.front().when; }

 private:
  struct Item {
    double when;
    std::uint64_t number;
    std::function<void()> what;
  };
  static bool later(const Item& a, const Item& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }
  std::vector<Item> queue_;
  std::uint64_t count_ = 0;
};

}  // namespace holdfast::sim
