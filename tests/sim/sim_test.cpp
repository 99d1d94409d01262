// The protocol of supervision under all kinds of faults, in virtual time: one seed, one schedule.
//   HOLDFAST_SCHEDULES=100000   the number of schedules    HOLDFAST_FIRST=5001   the seed of the first one
//   HOLDFAST_SEED=17            only this one, with its trace
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "src/base/env.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {
namespace {

struct Outcome {
  std::string broken, trace;
};

using Faults = void (World::*)();  ///< null: all

Outcome play(std::uint64_t seed, Bug bug, Coverage& coverage, bool tracing = false, Faults only = nullptr) {
  World world(seed, bug, coverage, tracing);
  if (only) (world.*only)();
  Outcome out;
  try {
    world.play();
  } catch (const Broken& broken) {
    out.broken = broken.what;
  }
  out.trace = world.trace();
  return out;
}

std::string tail(const std::string& text, std::size_t most = 12000) {
  return text.size() <= most ? text : "...\n" + text.substr(text.size() - most);
}

TEST(Simulation, NoScheduleBreaksAnInvariant) {
  const auto alone = env::get_integer("HOLDFAST_SEED");
  const std::uint64_t first =
      static_cast<std::uint64_t>(alone ? *alone : env::get_integer("HOLDFAST_FIRST").value_or(1));
  const auto count =
      alone ? 1u : static_cast<std::uint64_t>(env::get_integer("HOLDFAST_SCHEDULES").value_or(500));
  Coverage coverage;
  std::uint64_t failed = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = first; seed < first + count && failed < 5; ++seed) {
    const Outcome out = play(seed, Bug::none, coverage);
    if (out.broken.empty() && !alone) continue;
    Coverage ignored;
    const Outcome again = play(seed, Bug::none, ignored, true);
    EXPECT_EQ(again.broken, out.broken) << "a seed is a schedule";
    if (alone) std::fprintf(stderr, "%s", again.trace.c_str());
    if (out.broken.empty()) continue;
    ++failed;
    ADD_FAILURE() << "seed " << seed << ": it does not hold that " << out.broken << "\nHOLDFAST_SEED=" << seed
                  << " shows all of it; its end:\n"
                  << tail(again.trace, 6000);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu schedules in %.1f s: %lld events, %lld attempts, %lld terms, %lld adopted, %lld commits, %lld "
      "requeues, "
      "%zu pairs of stage and event, %lld writes after a check that no longer held\n",
      static_cast<unsigned long long>(count), seconds, static_cast<long long>(coverage.events),
      static_cast<long long>(coverage.attempts), static_cast<long long>(coverage.terms),
      static_cast<long long>(coverage.adopted), static_cast<long long>(coverage.commits),
      static_cast<long long>(coverage.requeues), coverage.pairs.size(),
      static_cast<long long>(coverage.voids));
  for (const auto& [code, times] : coverage.exits)
    std::printf("  exit %d: %lld\n", code, static_cast<long long>(times));
  for (const auto& [level, times] : coverage.levels)
    std::printf("  restored from %s: %lld\n", level.c_str(), static_cast<long long>(times));
  if (count >= 20000)
    for (const auto& [pair, times] : coverage.pairs)
      std::printf("  %s x %s: %lld\n", pair.first.c_str(), pair.second.c_str(),
                  static_cast<long long>(times));
  if (count >= 20000)
    for (const auto& [fault, times] : coverage.faults)
      std::printf("  fault %s: %lld\n", fault.c_str(), static_cast<long long>(times));
}

/// Plays 300 schedules with these faults only.
Coverage with_only(Faults faults) {
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Outcome out = play(seed, Bug::none, coverage, false, faults);
    if (out.broken.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": it does not hold that " << out.broken << "\nits end:\n"
                  << tail(play(seed, Bug::none, coverage, true, faults).trace, 6000);
    break;
  }
  return coverage;
}

/// No attempt ends, no node is lost, and the end is that of a run that met no fault (World::check_end).
TEST(Simulation, StorageThatHangsEndsNothing) {
  Coverage coverage = with_only(&World::only_let_storage_hang);
  for (const char* whose : {"all nodes", "a node", "a leader"})
    EXPECT_GT(coverage.faults["storage of " + std::string(whose) + " hangs"], 100) << whose;
  EXPECT_GT(coverage.terms, 300 + 10) << "leaders give way";
}

/// Also by the next leader, and before any pace is known.
TEST(Simulation, RankThatHangsIsNoticed) {
  Coverage coverage = with_only(&World::only_let_ranks_hang);
  EXPECT_GT(coverage.faults["rank hangs"], 300);
  EXPECT_GT(coverage.faults["leader dies"], 100);
}

/// A simulator that finds no bugs proves nothing: it must find these.
class SeededBug : public testing::TestWithParam<Bug> {};
TEST_P(SeededBug, IsFound) {
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= 20000; ++seed)
    if (!play(seed, GetParam(), coverage).broken.empty()) return;
  ADD_FAILURE() << "not found in 20000 schedules";
}
INSTANTIATE_TEST_SUITE_P(Simulation, SeededBug, testing::Values(Bug::ranks_trust_all));

}  // namespace
}  // namespace holdfast::sim
