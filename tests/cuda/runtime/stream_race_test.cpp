// Races between streams are found whatever order the simulator happened to choose, and what is ordered is not
// reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "src/cuda/simt/simt.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct StreamRace : testing::Test {
  StreamRace() {
    for (StreamHandle& stream : streams) stream = gpu.stream_create(Runtime::Priority::normal);
    event = gpu.event_create();
    data = static_cast<std::byte*>(gpu.device_alloc(4096));
  }
  void work(int stream, const char* name, std::vector<Access> accesses) {
    gpu.enqueue(streams[stream], name, accesses, [] {});
  }
  Access in(int from, int bytes) { return reads(data + from, bytes); }
  Access out(int from, int bytes) { return writes(data + from, bytes); }
  void run() { gpu.progress(1000); }

  SimRuntime gpu;
  StreamHandle streams[3];
  EventHandle event;
  std::byte* data;
};

TEST_F(StreamRace, AMissingEventIsFound) {
  work(0, "producer", {out(0, 100)});
  work(1, "consumer", {in(99, 1)});
  EXPECT_THAT([&] { run(); }, ThrowsMessage<Finding>(AllOf(HasSubstr("producer on stream 0"),
                                                           HasSubstr("consumer on stream 1"),
                                                           HasSubstr("nothing orders them"))));
}

TEST_F(StreamRace, AnEventOrders) {
  work(0, "producer", {out(0, 100)});
  gpu.event_record(event, streams[0]);
  gpu.stream_wait(streams[1], event);
  work(1, "consumer", {in(0, 100)});
  EXPECT_NO_THROW(run());
}

TEST_F(StreamRace, AnEventRecordedTooEarlyDoesNotOrder) {
  gpu.event_record(event, streams[0]);
  work(0, "producer", {out(0, 100)});
  gpu.stream_wait(streams[1], event);
  work(1, "consumer", {in(0, 100)});
  EXPECT_THROW(run(), Finding);
}

TEST_F(StreamRace, OneStreamIsInOrder) {
  work(0, "producer", {out(0, 100)});
  work(0, "consumer", {in(0, 100)});
  EXPECT_NO_THROW(run());
}

TEST_F(StreamRace, ReadersDoNotRace) {
  work(0, "reader", {in(0, 100)});
  work(1, "reader", {in(0, 100)});
  EXPECT_NO_THROW(run());
}

TEST_F(StreamRace, NeighboursDoNotRace) {
  work(0, "left", {out(0, 100)});
  work(1, "right", {out(100, 100)});
  EXPECT_NO_THROW(run());
}

TEST_F(StreamRace, AWriteBehindReadsOfTwoStreamsMustWaitForBoth) {
  work(0, "reader", {in(0, 100)});
  work(1, "reader", {in(50, 100)});
  gpu.event_record(event, streams[0]);
  gpu.stream_wait(streams[2], event);
  work(2, "writer", {out(0, 50)});  // only stream 0 read this
  EXPECT_NO_THROW(run());
  work(2, "writer", {out(120, 10)});
  EXPECT_THAT([&] { run(); },
              ThrowsMessage<Finding>(HasSubstr("reader on stream 1 reads and writer on stream 2")));
}

TEST_F(StreamRace, OrderGoesThroughAThirdStream) {
  work(0, "producer", {out(0, 100)});
  gpu.event_record(event, streams[0]);
  gpu.stream_wait(streams[1], event);
  const EventHandle second = gpu.event_create();
  gpu.event_record(second, streams[1]);
  gpu.stream_wait(streams[2], second);
  work(2, "consumer", {out(0, 100)});
  EXPECT_NO_THROW(run());
}

TEST_F(StreamRace, TheHostOrdersWhatItWaitedFor) {
  work(0, "producer", {out(0, 100)});
  gpu.event_record(event, streams[0]);
  while (!gpu.event_passed(event)) {
  }
  work(1, "consumer", {in(0, 100)});
  EXPECT_NO_THROW(run());
}

TEST_F(StreamRace, ThatItRanIsNotThatTheHostKnows) {
  work(0, "producer", {out(0, 100)});
  run();
  work(1, "consumer", {in(0, 100)});
  EXPECT_THROW(run(), Finding);
}

TEST_F(StreamRace, WhatAnotherThreadWaitedForIsNotKnownHere) {
  work(0, "producer", {out(0, 100)});
  gpu.event_record(event, streams[0]);
  std::thread([&] {
    while (!gpu.event_passed(event)) {
    }
  }).join();
  work(1, "consumer", {in(0, 100)});
  EXPECT_THROW(run(), Finding);
}

TEST_F(StreamRace, AWordOrders) {
  auto* word = static_cast<std::uint32_t*>(gpu.host_alloc(4));
  *word = 0;
  work(0, "producer", {out(0, 100)});
  gpu.write_word(streams[0], word, 1);
  gpu.wait_word(streams[1], word, 1);
  work(1, "consumer", {in(0, 100)});
  EXPECT_NO_THROW(run());
  work(0, "producer", {out(0, 100)});  // the other way nothing orders them
  EXPECT_THROW(run(), Finding);
}

TEST_F(StreamRace, CopiesAndZerosAreKnown) {
  gpu.zero(streams[0], data, 100);
  gpu.copy(streams[1], data + 2000, data + 50, 100);
  EXPECT_THAT([&] { run(); },
              ThrowsMessage<Finding>(AllOf(HasSubstr("zero on stream 0"), HasSubstr("copy on stream 1"))));
}

TEST_F(StreamRace, GraphsAreCheckedWhereTheyAreLaunched) {
  gpu.capture_begin(streams[0]);
  work(0, "in graph", {out(0, 100)});
  const GraphHandle graph = gpu.capture_end(streams[0]);
  gpu.graph_launch(graph, streams[0]);
  gpu.graph_launch(graph, streams[0]);
  EXPECT_NO_THROW(run());
  gpu.graph_launch(graph, streams[1]);
  EXPECT_THAT([&] { run(); }, ThrowsMessage<Finding>(HasSubstr("in graph on stream 1")));
}

TEST_F(StreamRace, MemoryThatIsGivenAgainHasNoPast) {
  work(0, "producer", {out(0, 100)});
  run();
  gpu.device_free(data);
  data = static_cast<std::byte*>(gpu.device_alloc(4096));
  work(1, "consumer", {in(0, 100)});
  EXPECT_NO_THROW(run());
}

__global__ void silent(int* x) { *x = 1; }

TEST_F(StreamRace, AKernelMustDeclare) {
  auto* x = reinterpret_cast<int*>(data);
  EXPECT_THAT([&] { SIMT_LAUNCH(silent, 1, 1, streams[0], x); },
              ThrowsMessage<Finding>(HasSubstr("kernel silent was enqueued without declare()")));
  gpu.declare(streams[0], "silent", {writes(x, 4)});
  EXPECT_NO_THROW(SIMT_LAUNCH(silent, 1, 1, streams[0], x));
  gpu.declare(streams[0], "silent", {writes(x, 4)});
  EXPECT_THAT([&] { gpu.zero(streams[0], x, 4); },
              ThrowsMessage<Finding>(HasSubstr("instead of its kernel")));
}

/// Against a checker that remembers everything: random programs of reads, writes, events.
TEST(RaceCheck, FindsWhatAFullHistoryFinds) {
  int races = 0, clean = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const auto* base = reinterpret_cast<const std::byte*>(0x1000);
    struct Old {
      Epoch epoch;
      Access access;
    };
    std::vector<Old> history;
    RaceCheck check;
    Clock clocks[3];
    bool found = false, expected = false;
    for (unsigned i = 0; i < 4 + seed % 60 && !found && !expected; ++i) {
      const auto line = static_cast<std::uint32_t>(below(3));
      Clock& clock = clocks[line];
      if (below(6) != 0) clock.join(clocks[below(3)]), clock.join(clocks[below(3)]);
      const Epoch epoch = clock.tick(line);
      const int from = below(40);
      const Access access{base + from, 1 + below(20), below(3) == 0};
      for (const Old& old : history) {
        const auto *a = static_cast<const std::byte*>(old.access.data),
                   *b = static_cast<const std::byte*>(access.data);
        if (a < b + access.bytes && b < a + old.access.bytes && (old.access.writes || access.writes) &&
            !clock.knows(old.epoch))
          expected = true;
      }
      history.push_back({epoch, access});
      const RaceCheck::Actor actor{epoch, &clock, std::make_shared<const std::string>("work")};
      found = check.touch(actor, {access}).has_value();
      EXPECT_EQ(found, expected) << "seed " << seed << ", access " << i;
    }
    ++(expected ? races : clean);
  }
  EXPECT_GT(races, 100);
  EXPECT_GT(clean, 10);
}

TEST(RaceCheck, ForgetsWhatIsOrderedBeforeTheLatest) {
  RaceCheck check;
  Clock clock;
  const auto* base = reinterpret_cast<const std::byte*>(0x1000);
  const auto name = std::make_shared<const std::string>("work");
  for (int step = 0; step < 1000; ++step)
    for (int piece = 0; piece < 16; ++piece) {
      const Epoch epoch = clock.tick(0);
      const Access access{base + 64 * piece, 64, step % 2 == 0};
      EXPECT_FALSE(check.touch({epoch, &clock, name}, {access}));
    }
  EXPECT_LE(check.segments(), 16u);
}

}  // namespace
}  // namespace holdfast::cuda::sim
