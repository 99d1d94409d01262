#include "src/control/worker.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/control/loop_thread.hpp"

namespace holdfast::control {
namespace {

using test::LoopThread;

TEST(Worker, WorksInOrderAndAnswersInTheLoopsThread) {
  LoopThread loop;
  std::vector<int> answers;
  std::thread::id answered_in;
  auto worker = loop.call([&] { return std::make_unique<Worker>(loop.loop); });
  loop.call([&] {
    for (int i = 0; i < 20; ++i)
      worker->ask([i] { return i * i; },
                  [&](int square) { answers.push_back(square), answered_in = std::this_thread::get_id(); });
  });
  ASSERT_TRUE(loop.until([&] { return answers.size() == 20; }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(answers[i], i * i);
  EXPECT_EQ(answered_in, loop.call([] { return std::this_thread::get_id(); }));
  loop.call([&] { worker.reset(); });
}

/// Work that waits for a file system that never answers again.
TEST(Worker, ThatHangsIsLeftBehind) {
  struct Gate {
    std::promise<void> open;
    std::atomic<bool> passed = false;
  };
  LoopThread loop;
  auto gate = std::make_shared<Gate>();
  auto future = std::make_shared<std::future<void>>(gate->open.get_future());
  bool answered = false, second = false;
  auto worker = loop.call([&] { return std::make_unique<Worker>(loop.loop, Millis(20)); });
  loop.call([&] {
    worker->run([gate, future] { future->wait(), gate->passed = true; }, [&] { answered = true; });
    worker->run([&] { second = true; });
  });
  ASSERT_TRUE(loop.until([&] { return worker->busy_for().has_value(); }));
  loop.call([&] { worker.reset(); });  // returns
  gate->open.set_value();
  for (const auto deadline = Deadline::in(Millis(5000)); !gate->passed;) ASSERT_FALSE(deadline.passed());
  loop.settle();
  EXPECT_FALSE(answered) << "its owner is gone";
  EXPECT_FALSE(second) << "it had not begun";
}

TEST(Worker, WhatHasBegunMayEnd) {
  LoopThread loop;
  std::atomic<bool> done = false;
  auto worker = loop.call([&] { return std::make_unique<Worker>(loop.loop, Millis(5000)); });
  loop.call([&] { worker->run([&] { std::this_thread::sleep_for(Millis(30)), done = true; }); });
  ASSERT_TRUE(loop.until([&] { return worker->busy_for().has_value() || done; }));
  loop.call([&] { worker.reset(); });
  EXPECT_TRUE(done);
}

TEST(Worker, TheRestIsDoneWhereItMust) {
  LoopThread loop;
  std::atomic<int> done = 0;
  auto worker =
      loop.call([&] { return std::make_unique<Worker>(loop.loop, Millis(5000), Worker::Rest::done); });
  loop.call([&] {
    for (int i = 0; i < 3; ++i) worker->run([&] { std::this_thread::sleep_for(Millis(10)), ++done; });
    worker.reset();
  });
  EXPECT_EQ(done, 3);
}

TEST(Worker, TheRestIsDroppedWhereWhatHasBegunHangs) {
  LoopThread loop;
  auto gate = std::make_shared<std::promise<void>>();
  auto worker =
      loop.call([&] { return std::make_unique<Worker>(loop.loop, Millis(20), Worker::Rest::done); });
  bool second = false;
  loop.call([&] {
    worker->run([gate, future = std::make_shared<std::future<void>>(gate->get_future())] { future->wait(); });
    worker->run([&] { second = true; });
    worker.reset();  // returns
  });
  gate->set_value();
  loop.settle();
  EXPECT_FALSE(second);
}

}  // namespace
}  // namespace holdfast::control
