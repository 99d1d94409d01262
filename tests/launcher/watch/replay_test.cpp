// A run that is over, shown again.
#include "launcher/watch/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::launcher::watch {
namespace {

using testing::HasSubstr;

/// Steps 1 to 100, one a second from 22:13:20 on; node b is lost after 50 s.
Replay a_replay() {
  View end;
  end.status.name = "over";
  end.status.steps = 100;
  const auto at = [&](double second, Event event) {
    end.events.push_back({{}, std::move(event)});
    end.events.back().envelope.unix = 1.7e9 + second;
  };
  at(0, events::LeaderElected{"a", "7.0", 1, {}, 2});
  at(0, events::AttemptPlanned{1, {"a", "b"}, "", "", 0});
  at(50, events::NodeLost{"b", 1, 2.0, "no heartbeat"});
  at(100, events::RunFinished{5, "out_of_spares", "", {}});
  std::vector<nlohmann::json> steps;
  for (int step = 1; step <= 100; ++step)
    steps.push_back(
        {{"step", step},
         {"loss", 3.0},
         {"time", "2023-11-14T22:" + std::to_string(13 + (20 + step) / 60) + ":" +
                      ((20 + step) % 60 < 10 ? "0" : "") + std::to_string((20 + step) % 60) + "Z"}});
  steps.push_back({{"step", 101}, {"loss", 1.0}});  // nobody knows when
  return {end, std::move(steps)};
}

std::int64_t step_of(const Replay& replay) {
  const auto view = replay.view();
  return view.status.last_step ? view.status.last_step->value("step", std::int64_t{0}) : 0;
}

TEST(Replay, TellsOfEachMomentWhatWasKnownThen) {
  Replay replay = a_replay();
  EXPECT_EQ(step_of(replay), 0);
  EXPECT_TRUE(replay.view().status.state.lost.empty());
  EXPECT_FALSE(replay.view().status.state.outcome);
  replay.pass(24.3);  // 100 s in a minute: 40.5 s
  EXPECT_EQ(step_of(replay), 40);
  EXPECT_TRUE(replay.view().status.state.lost.empty());
  replay.pass(12);
  EXPECT_EQ(step_of(replay), 60);
  EXPECT_TRUE(replay.view().status.state.lost.contains("b"));
  replay.pass(1000);
  EXPECT_EQ(step_of(replay), 100);
  EXPECT_TRUE(replay.view().status.state.outcome);
  EXPECT_FALSE(replay.over()) << "the end stays until a key says so";
}

TEST(Replay, KeysHoldJumpAndChangeTheSpeed) {
  Replay replay = a_replay();
  replay.take(' ');
  replay.pass(30);
  EXPECT_EQ(step_of(replay), 0);
  EXPECT_THAT(replay.view().footer, HasSubstr("held: space go on"));
  for (int i = 0; i < 4; ++i) replay.take('>');
  EXPECT_EQ(step_of(replay), 20);
  replay.take('<');
  EXPECT_EQ(step_of(replay), 15);
  for (int i = 0; i < 9; ++i) replay.take('<');
  EXPECT_EQ(step_of(replay), 0);
  replay.take(' ');
  replay.take('+');
  replay.pass(15.1);
  EXPECT_EQ(step_of(replay), 50);
  replay.take('x');
  EXPECT_FALSE(replay.over());
  replay.take('r');
  EXPECT_TRUE(replay.over());
  EXPECT_FALSE(replay.quit()) << "r goes back to the run";
}

TEST(Replay, QQuitsAsEverywhere) {
  Replay replay = a_replay();
  replay.take('q');
  EXPECT_TRUE(replay.over() && replay.quit());
}

TEST(Replay, OfNothingIsEmpty) {
  Replay replay(View{}, {});
  replay.pass(10);
  replay.take('>');
  EXPECT_EQ(step_of(replay), 0);
}

TEST(StepTape, KeepsALongRunInBoundedMemory) {
  StepTape tape;
  for (std::int64_t step = 1; step <= 200000; ++step) tape.add({{"step", step}});
  EXPECT_LE(tape.lines().size(), StepTape::most);
  EXPECT_GE(tape.lines().size(), StepTape::most / 4);
  EXPECT_EQ(tape.lines().front()["step"], 1);
  EXPECT_GT(tape.lines().back()["step"], 199900);
  const auto stride = tape.lines()[1]["step"].get<std::int64_t>() - 1;
  for (std::size_t i = 1; i < tape.lines().size(); ++i)
    ASSERT_EQ(tape.lines()[i]["step"].get<std::int64_t>() - tape.lines()[i - 1]["step"].get<std::int64_t>(),
              stride);
}

}  // namespace
}  // namespace holdfast::launcher::watch
