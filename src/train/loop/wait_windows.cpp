#include "src/train/loop/wait_windows.hpp"

#include <algorithm>
#include <utility>

#include "src/base/as_size.hpp"

namespace holdfast::train {

WaitWindows::WaitWindows(const comm::Communicator& world, control::RankLink& link)
    : world_(world), link_(link), before_(as_size(world.size())), now_(before_) {}

void WaitWindows::stepped(std::int64_t step, double now) {
  ++steps_;
  if (step % control::Waits::window != 0) return;
  if (world_.awaited(now_) && began_ && steps_ == control::Waits::window) tell(step, now - *began_);
  std::swap(before_, now_);
  began_ = now;
  steps_ = 0;
}

void WaitWindows::tell(std::int64_t step, double seconds) {
  nodes_.clear();
  for (std::size_t rank = 0; rank < now_.size(); ++rank)
    if (const std::int64_t ns = now_[rank] - before_[rank]; ns > 0)
      nodes_.push_back({static_cast<int>(rank), ns / 1000});
  if (nodes_.empty()) return;
  std::sort(nodes_.begin(), nodes_.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  control::Waits waits{step, static_cast<std::int64_t>(seconds * 1e6), static_cast<int>(nodes_.size()),
                       nodes_[nodes_.size() / 2].us, nodes_};
  waits.longest.resize(std::min(nodes_.size(), control::Waits::max_named));
  link_.waited(waits);
}

}  // namespace holdfast::train
