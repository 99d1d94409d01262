// Writes that hang: a full pipe blocks as a file system does that no longer answers.
#include "src/base/write_queue.hpp"

#include <gmock/gmock.h>

#include <semaphore>

#include "tests/support/full_pipe.hpp"

namespace holdfast {
namespace {

constexpr Millis patience{20000};

class WriteQueueTest : public ::testing::Test {
 protected:
  std::function<void()> write(const std::string& text) {
    return [pipe = pipe_, text] { files::append_all(pipe->in(), text, "a full pipe"); };
  }
  std::shared_ptr<FullPipe> pipe_ = std::make_shared<FullPipe>();
};

TEST_F(WriteQueueTest, NobodyWaitsForAWriteThatHangsAndNothingIsLost) {
  WriteQueue queue(1 << 20, patience);
  std::string all;
  for (char c = 'a'; c <= 'z'; ++c) {
    all += std::string(1000, c);
    EXPECT_TRUE(queue.add(1000, write(std::string(1000, c))));
  }
  EXPECT_FALSE(queue.flush(Millis(20))) << "nothing hangs: this shows nothing";
  pipe_->drain();
  EXPECT_TRUE(queue.flush(patience));
  EXPECT_EQ(pipe_->rest(), all);
}

TEST_F(WriteQueueTest, WhatMayWaitIsBounded) {
  WriteQueue queue(1000, patience);
  EXPECT_TRUE(queue.add(5000, write("too long, but alone "))) << "else it could never be written";
  EXPECT_FALSE(queue.add(1, write("no room")));
  EXPECT_TRUE(queue.add(0, write("takes no room ")));
  pipe_->drain();
  EXPECT_TRUE(queue.flush(patience));
  EXPECT_TRUE(queue.add(1000, write("room again")));
  EXPECT_TRUE(queue.flush(patience));
  EXPECT_EQ(pipe_->rest(), "too long, but alone takes no room room again");
}

TEST_F(WriteQueueTest, TheEndWaitsForTheRestButNotForEver) {
  const auto ended = std::make_shared<std::binary_semaphore>(0);
  {
    WriteQueue queue(1000, Millis(20));
    queue.add(1, [write = write("began "), ended] {
      write();
      ended->release();
    });
    queue.add(1, write("never began"));
  }
  {
    WriteQueue queue(1000, patience);
    queue.add(1, [pipe = pipe_] { pipe->drain(); });
    queue.add(1, write("done"));
  }
  EXPECT_TRUE(ended->try_acquire_for(patience)) << "of the write that hung";
  EXPECT_THAT(pipe_->rest(), ::testing::AnyOf("began done", "donebegan ")) << "two threads";
}

TEST_F(WriteQueueTest, EachWriteIsDoneInItsOrder) {
  WriteQueue queue(1 << 20, patience);
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) queue.add(1, [&order, i] { order.push_back(i); });
  EXPECT_TRUE(queue.flush(patience));
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

}  // namespace
}  // namespace holdfast
