// Whatever the order in which ranks come along, a snapshot of one common step is whole.
#include "src/train/local/buffer_rotation.hpp"
#include "src/base/as_size.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace holdfast::train {
namespace {

TEST(BufferRotation, StaysWhileTheLiveBufferIsNoSnapshot) {
  BufferRotation r(2, 1);
  EXPECT_EQ(r.next(), 1);
  r.snapshot();
  EXPECT_EQ(r.next(), 0);
  r.move(0);
  EXPECT_EQ(r.next(), 0);
  r.snapshot();
  EXPECT_EQ(r.next(), 1);
}

TEST(BufferRotation, KeepsWhatIsToBeKeptWhereThereIsRoom) {
  BufferRotation r(3, 0);
  const auto step = [&] {
    r.move(r.next());
    r.snapshot();
    return r.live();
  };
  step();
  r.keep(0);
  EXPECT_EQ(step(), 1);
  EXPECT_EQ(step(), 2);
  EXPECT_EQ(step(), 1);
  r.keep(1);
  EXPECT_EQ(step(), 0);
  EXPECT_EQ(step(), 2);

  BufferRotation two(2, 0);
  two.snapshot();
  two.keep(1);
  EXPECT_EQ(two.next(), 1) << "the newest snapshot comes first";
}

TEST(BufferRotation, WhatASaveIsWrittenFromIsNotWrittenOver) {
  BufferRotation r(3, 0);
  r.snapshot();
  r.hold();
  for (int step = 0; step < 5; ++step) {
    EXPECT_NE(r.next(), 0);
    r.move(r.next());
    r.snapshot();
    EXPECT_THROW(r.hold(), std::logic_error) << "one at a time";
  }
  r.release();
  EXPECT_EQ(r.next(), 0) << "it has been left longest";

  BufferRotation alone(1, 0);
  alone.snapshot();
  EXPECT_EQ(alone.next(), 0);
  alone.hold();
  EXPECT_THROW(alone.next(), std::logic_error);
  alone.release();
  EXPECT_EQ(alone.next(), 0);
}

/// What one rank has in its buffers.
struct Rank {
  Rank(int buffers) : rotation(buffers, 0), sealed(as_size(buffers), -1) {}
  /// The optimizer step that leads to `step`.
  void update() {
    const int to = rotation.next();
    sealed[to] = -1;
    if (to != rotation.live()) rotation.move(to);
  }
  void seal(long step) {
    rotation.snapshot();
    sealed[rotation.live()] = step;
  }
  /// Begins to write a snapshot, or ends it.
  void save_or_not(std::mt19937& random) {
    if (random() % 8 != 0) return;
    if (rotation.holds()) {
      EXPECT_EQ(sealed[held], held_step) << "it changed while it was written";
      rotation.release();
    } else if (rotation.live_is_snapshot()) {
      rotation.hold();
      held = rotation.live();
      held_step = sealed[held];
    }
  }
  std::set<long> steps() const {
    std::set<long> out(sealed.begin(), sealed.end());
    out.erase(-1);
    return out;
  }
  BufferRotation rotation;
  std::vector<long> sealed;
  int held = -1;
  long held_step = -1;
};

/// Each rank does its parts of a step in order; between ranks any order, but for agreeing on the next
/// step, which waits for all. Looked at after every part.
TEST(BufferRotation, ACommonStepAlwaysExistsAndIsAtMostOneSnapshotOld) {
  std::mt19937 random(3);
  struct Case {
    int buffers;
    long every, partner_every;
    bool saves = false;  ///< some snapshots are held, for a time of any length
  };
  for (const Case c : {Case{2, 1, 1}, Case{2, 3, 3}, Case{3, 1, 1}, Case{3, 1, 4}, Case{3, 2, 6},
                       Case{3, 1, 1, true}, Case{3, 3, 3, true}, Case{4, 1, 4, true}, Case{4, 2, 6, true}}) {
    std::vector<Rank> ranks(5, Rank(c.buffers));
    long on_partner = -1;  // newest step that all have on their partners
    for (long step = 1; step <= 60; ++step) {
      const bool snapshot = step % c.every == 0, copied = snapshot && step % c.partner_every == 0;
      std::vector<int> part(ranks.size(), 0);
      for (std::size_t left = 3 * ranks.size(); left > 0;) {
        const std::size_t i = random() % ranks.size();
        Rank& rank = ranks[i];
        if (part[i] == 3) continue;
        if (part[i] == 0) rank.update();
        if (part[i] == 1 && snapshot) rank.seal(step);
        if (c.saves) rank.save_or_not(random);
        if (part[i] == 2 && copied) rank.rotation.keep(rank.rotation.live());
        ++part[i];
        --left;
        std::set<long> common = ranks[0].steps();
        for (const Rank& other : ranks) {
          const auto steps = other.steps();
          std::erase_if(common, [&](long s) { return !steps.contains(s); });
        }
        const long newest_whole = (step - 1) / c.every * c.every;  // before this step
        if (newest_whole > 0) {
          ASSERT_FALSE(common.empty()) << "step " << step;
          EXPECT_GE(*common.rbegin(), newest_whole);
        }
        if (on_partner > 0) {
          EXPECT_TRUE(common.contains(on_partner)) << step << ": " << on_partner;
        }
      }
      if (copied) on_partner = step;
    }
  }
}

}  // namespace
}  // namespace holdfast::train
