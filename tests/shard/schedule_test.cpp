// A schedule is replayed by hand: every use finds its unit, no buffer is taken from a unit that is in use,
// and never more is gathered ahead than the policy allows.
#include "src/shard/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace holdfast::shard {
namespace {

Policy policy_with(int forward, int backward, int limit = 0, std::vector<bool> kept = {},
                   bool across = false) {
  Policy p;
  p.prefetch_forward = forward;
  p.prefetch_backward = backward;
  p.gathered_limit = limit;
  p.kept = std::move(kept);
  p.keep_across_micro_steps = across;
  return p;
}

struct Replay {
  int gathers = 0, max_waiting = 0, max_ahead = 0;
  std::map<int, int> of_unit;
};

/// Walks the schedule as a rank does; checks what must hold at every moment.
Replay replay(const Schedule& schedule, const GatherBuffers& buffers) {
  Replay out;
  std::vector<int> in_buffer(buffers.count, -1);
  std::vector<int> waiting;  // first uses of gathers not yet used
  std::size_t next = 0;
  for (int now = -1; now < static_cast<int>(schedule.uses.size()); ++now) {
    for (; next < schedule.gathers.size() && schedule.gathers[next].at == now; ++next) {
      const Gather& g = schedule.gathers[next];
      EXPECT_GE(g.use, now);
      const int own = buffers.of_unit[g.unit];
      if (own >= 0)
        EXPECT_EQ(g.buffer, own);
      else
        EXPECT_TRUE(buffers.in_ring(g.buffer));
      for (int use = std::max(now, 0); use < g.use; ++use)  // whoever is needed before stays where it is
        EXPECT_NE(schedule.uses[use].buffer, g.buffer) << "use " << use << " loses its buffer";
      in_buffer[g.buffer] = g.unit;
      ++out.gathers;
      ++out.of_unit[g.unit];
      if (g.use > now) waiting.push_back(g.use);
      out.max_ahead = std::max(out.max_ahead, g.use - now);
    }
    std::erase(waiting, now);
    out.max_waiting = std::max(out.max_waiting, static_cast<int>(waiting.size()));
    if (now < 0) continue;
    const Use& use = schedule.uses[now];
    EXPECT_EQ(in_buffer[use.buffer], use.unit) << "use " << now;
  }
  EXPECT_EQ(next, schedule.gathers.size()) << "a gather that nobody enqueues";
  EXPECT_TRUE(waiting.empty()) << "a gather that nobody uses";
  return out;
}

Replay replay(int layers, bool tied, int micro_steps, const Policy& policy, bool backward = true) {
  const GatherBuffers buffers = gather_buffers_of(layers, policy);
  return replay(schedule_of(uses_of(layers, tied, micro_steps, backward), buffers, policy), buffers);
}

TEST(Schedule, UsesAreThoseOfTheModel) {
  std::vector<int> units;
  for (const Use& use : uses_of(2, true, 1)) units.push_back(use.unit);
  EXPECT_EQ(units, (std::vector<int>{0, 1, 2, 0, 3, 2, 1}));
  units.clear();
  for (const Use& use : uses_of(2, false, 2, false)) units.push_back(use.unit);
  EXPECT_EQ(units, (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(Schedule, EveryUseFindsItsUnitWhateverThePolicy) {
  for (int layers : {0, 1, 2, 3, 7})
    for (bool tied : {false, true})
      for (int forward : {0, 1, 2, 3, 16})
        for (int backward : {0, 1, 3})
          for (int limit : {0, 1, 2})
            for (bool across : {false, true})
              for (int keep : {0, 1, 2}) {
                std::vector<bool> kept(layers, keep == 2);
                for (int b = 0; keep == 1 && b < layers; b += 2) kept[b] = true;
                const Replay seen =
                    replay(layers, tied, 3, policy_with(forward, backward, limit, kept, across));
                const int depth = std::max(forward, backward);
                EXPECT_LE(seen.max_ahead, std::max(depth, 1));
                EXPECT_LE(seen.max_waiting, limit > 0 ? std::min(limit, depth) : depth);
                EXPECT_EQ(seen.of_unit.at(0), 1) << "the embedding has a buffer of its own";
                EXPECT_EQ(seen.of_unit.at(layers + 1), 1);
              }
}

TEST(Schedule, WithoutPrefetchEveryGatherIsForTheUseThatAsks) {
  const Policy policy = policy_with(0, 0);
  const GatherBuffers buffers = gather_buffers_of(4, policy);
  EXPECT_EQ(buffers.ring, 1);
  const Schedule schedule = schedule_of(uses_of(4, false, 2), buffers, policy);
  for (const Gather& g : schedule.gathers) EXPECT_EQ(g.at, g.use);
  // Forward 1..4, backward 3..1 (4 is still there), and the same again but for 1, where the backward pass
  // ends.
  EXPECT_EQ(replay(schedule, buffers).gathers, 2 + 7 + 6);
}

TEST(Schedule, PrefetchStartsBeforeTheFirstUseAndCrossesMicroSteps) {
  auto crosses = [](const Schedule& schedule) {
    return std::any_of(schedule.gathers.begin(), schedule.gathers.end(), [&](const Gather& g) {
      return g.at >= 0 && schedule.uses[g.at].micro_step < schedule.uses[g.use].micro_step;
    });
  };
  const Policy policy = policy_with(3, 3);
  const Schedule schedule = schedule_of(uses_of(6, false, 2), gather_buffers_of(6, policy), policy);
  ASSERT_GE(schedule.gathers.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(schedule.gathers[i].at, -1);
  // Blocks 1 to 4 are still in the ring when the second micro-step begins: nothing is needed so early.
  EXPECT_FALSE(crosses(schedule));
  // Block 2, kept and to be gathered anew, is free while block 1 goes backward.
  const Policy kept = policy_with(3, 3, 0, {false, true, false, false, false, false});
  EXPECT_TRUE(crosses(schedule_of(uses_of(6, false, 2), gather_buffers_of(6, kept), kept)));
}

TEST(Schedule, KeptBlocksAreGatheredOncePerMicroStepOrOncePerStep) {
  const std::vector<bool> all(5, true);
  const Replay each = replay(5, false, 3, policy_with(1, 1, 0, all, false)),
               once = replay(5, false, 3, policy_with(1, 1, 0, all, true));
  for (int block = 1; block <= 5; ++block) {
    EXPECT_EQ(each.of_unit.at(block), 3);
    EXPECT_EQ(once.of_unit.at(block), 1);
  }
}

TEST(Schedule, OneKeptBlockAmongOthers) {
  std::vector<bool> kept(6, false);
  kept[1] = true;
  const Replay seen = replay(6, false, 1, policy_with(1, 1, 0, kept));
  EXPECT_EQ(seen.of_unit.at(2), 1);
  EXPECT_EQ(seen.of_unit.at(1), 2);
  EXPECT_EQ(seen.of_unit.at(6), 1) << "the last block stays from forward to backward";
}

TEST(Schedule, TheLimitCountsUnitsGatheredButNotYetUsed) {
  EXPECT_EQ(replay(8, false, 1, policy_with(3, 3)).max_waiting, 3);
  EXPECT_EQ(replay(8, false, 1, policy_with(3, 3, 2)).max_waiting, 2);
  EXPECT_EQ(replay(8, false, 1, policy_with(3, 3, 1)).max_waiting, 1);
  EXPECT_EQ(gather_buffers_of(8, policy_with(3, 3, 1)).ring, 2);
  EXPECT_EQ(gather_buffers_of(8, policy_with(3, 1)).ring, 4);
  EXPECT_EQ(gather_buffers_of(2, policy_with(16, 16)).ring, 2) << "never more buffers than blocks";
}

TEST(Schedule, EvaluationGathersEachUnitOnce) {
  const Replay seen = replay(5, true, 1, policy_with(2, 0), false);
  EXPECT_EQ(seen.gathers, 7);
}

}  // namespace
}  // namespace holdfast::shard
