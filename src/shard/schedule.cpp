#include "src/shard/schedule.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::shard {

std::vector<Use> uses_of(int layers, bool tied, int micro_steps, bool backward) {
  std::vector<Use> out;
  for (int step = 0; step < micro_steps; ++step) {
    for (int unit = 0; unit <= layers; ++unit) out.push_back({unit, Pass::forward, step});
    if (tied) out.push_back({0, Pass::head, step});
    out.push_back({layers + 1, Pass::head, step});
    for (int unit = layers; backward && unit >= 1; --unit) out.push_back({unit, Pass::backward, step});
  }
  return out;
}

namespace {

int deepest(const Policy& policy) { return std::max(policy.prefetch_forward, policy.prefetch_backward); }
int limit_of(const Policy& policy) {
  return policy.gathered_limit > 0 ? policy.gathered_limit : deepest(policy);
}

/// Walks the uses in order and decides where each finds its unit.
class Planner {
 public:
  Planner(std::vector<Use> uses, const GatherBuffers& buffers, const Policy& policy)
      : buffers_(buffers), policy_(policy), state_(as_size(buffers.count)) {
    out_.uses = std::move(uses);
    const int units = static_cast<int>(buffers.of_unit.size());
    buffer_of_.assign(units, -1);
    next_use_.resize(out_.uses.size());
    std::vector<int> next(units, never);
    for (std::size_t i = out_.uses.size(); i-- > 0;) {
      next_use_[i] = next[unit_of(i)];
      next[unit_of(i)] = static_cast<int>(i);
    }
  }

  Schedule plan() {
    for (int now = -1; now < static_cast<int>(out_.uses.size()); ++now) {
      std::erase_if(in_flight_, [&](int use) { return use <= now; });
      const int last = std::min(static_cast<int>(out_.uses.size()) - 1, now + depth_at(now));
      while (settled_ <= last && settle(settled_, now)) ++settled_;
      expects(settled_ > now, "a unit is in its buffer when it is used");
    }
    return std::move(out_);
  }

 private:
  static constexpr int never = 1 << 30;
  struct GatherBuffer {
    int unit = -1;
    int last_use = -1;  ///< the last one settled so far
  };

  std::size_t unit_of(std::size_t use) const { return as_size(out_.uses[use].unit); }
  int depth_at(int now) const {
    const bool forward = now < 0 || out_.uses[now].pass == Pass::forward;
    return forward ? policy_.prefetch_forward : policy_.prefetch_backward;
  }
  /// A kept block that was gathered in an earlier micro-step, where that does not count.
  bool stale(const Use& use, const GatherBuffer& buffer) const {
    const bool block = use.unit > 0 && as_size(use.unit) + 1 < buffer_of_.size();
    if (!block || !policy_.keeps(use.unit - 1) || policy_.keep_across_micro_steps) return false;
    return out_.uses[buffer.last_use].micro_step != use.micro_step;
  }
  /// The buffer for a unit that has none at time `now`, or -1: all are taken until later.
  int free_room(int unit, int now) const {
    auto taken = [&](const GatherBuffer& buffer) { return buffer.unit >= 0 && buffer.last_use >= now; };
    if (const int own = buffers_.of_unit[unit]; own >= 0) return taken(state_[own]) ? -1 : own;
    int best = -1, best_next = -1;
    for (int r = buffers_.ring_first; r < buffers_.count; ++r) {
      const GatherBuffer& buffer = state_[r];
      if (taken(buffer)) continue;
      const int next = buffer.unit < 0 ? never + 1 : next_use_[buffer.last_use];
      if (next > best_next) {
        best = r;
        best_next = next;
      }
    }
    return best;
  }

  /// Finds or makes a buffer for use `index`; false: it has to wait.
  bool settle(int index, int now) {
    Use& use = out_.uses[index];
    int& where = buffer_of_[use.unit];
    if (where >= 0 && !stale(use, state_[where])) {
      use.buffer = where;
      state_[where].last_use = index;
      return true;
    }
    if (index > now && static_cast<int>(in_flight_.size()) >= limit_of(policy_)) return false;
    const int r = free_room(use.unit, now);
    if (r < 0) return false;
    GatherBuffer& buffer = state_[r];
    if (buffer.unit >= 0) buffer_of_[buffer.unit] = -1;
    buffer = {use.unit, index};
    where = use.buffer = r;
    out_.gathers.push_back({use.unit, r, index, now});
    if (index > now) in_flight_.push_back(index);
    return true;
  }

  const GatherBuffers& buffers_;
  const Policy& policy_;
  Schedule out_;
  std::vector<int> next_use_;   // of the same unit, by use
  std::vector<int> buffer_of_;  // by unit; -1: nowhere
  std::vector<GatherBuffer> state_;
  std::vector<int> in_flight_;  // first uses of units gathered but not yet used
  int settled_ = 0;             // uses [0, settled_) know their buffer
};

}  // namespace

GatherBuffers gather_buffers_of(int layers, const Policy& policy) {
  GatherBuffers out;
  out.of_unit.assign(as_size(layers) + 2, -1);
  out.of_unit.front() = out.count++;
  out.of_unit.back() = out.count++;
  int shared = 0;
  for (int block = 0; block < layers; ++block) {
    if (policy.keeps(block))
      out.of_unit[as_size(block) + 1] = out.count++;
    else
      ++shared;
  }
  out.ring_first = out.count;
  out.ring = std::min(shared, 1 + std::min(deepest(policy), limit_of(policy)));
  out.count += out.ring;
  return out;
}

Schedule schedule_of(std::vector<Use> uses, const GatherBuffers& buffers, const Policy& policy) {
  return Planner(std::move(uses), buffers, policy).plan();
}

}  // namespace holdfast::shard
