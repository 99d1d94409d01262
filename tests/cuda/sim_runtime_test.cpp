// The simulated GPU: orders that it may choose, and what it refuses.
#include "tests/cuda/sim/sim_runtime.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "src/base/error.hpp"

namespace holdfast::cuda::sim {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Options seeded(std::uint64_t seed) {
  Options options;
  options.seed = seed;
  return options;
}

struct SimRuntimeTest : testing::Test {
  StreamHandle new_stream() { return gpu.stream_create(Runtime::Priority::normal); }
  int* ints(int n) { return static_cast<int*>(gpu.device_alloc(n * 4)); }
  /// *to = value, on the stream.
  void set(StreamHandle stream, int* to, int value) {
    gpu.enqueue(stream, "set", {{writes(to, 4)}}, [=] { *to = value; });
  }
  void finish(StreamHandle stream) {
    const EventHandle event = gpu.event_create();
    gpu.event_record(event, stream);
    for (int i = 0; i < 1000 && !gpu.event_passed(event); ++i) {
    }
    ASSERT_TRUE(gpu.event_passed(event));
    gpu.event_destroy(event);
  }

  SimRuntime gpu{seeded(1)};
};

TEST_F(SimRuntimeTest, NothingRunsBeforeSomebodyAsks) {
  const StreamHandle stream = new_stream();
  int* x = ints(1);
  set(stream, x, 7);
  EXPECT_EQ(*x, -1);  // poison
  finish(stream);
  EXPECT_EQ(*x, 7);
}

TEST_F(SimRuntimeTest, AStreamKeepsItsOrderAndStreamsHaveNoneAmongThem) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    gpu.reseed(seed);
    std::vector<int> order;
    const StreamHandle a = new_stream(), b = new_stream();
    for (int i = 0; i < 3; ++i) {
      gpu.enqueue(a, "a", {}, [&order, i] { order.push_back(i); });
      gpu.enqueue(b, "b", {}, [&order, i] { order.push_back(10 + i); });
    }
    EXPECT_EQ(gpu.progress(100), 6);
    std::vector<int> of_a, of_b;
    for (int x : order) (x < 10 ? of_a : of_b).push_back(x);
    EXPECT_EQ(of_a, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(of_b, (std::vector<int>{10, 11, 12}));
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 8u);  // of 20
}

TEST_F(SimRuntimeTest, AnEventHoldsBackTheOtherStream) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    gpu.reseed(seed);
    const StreamHandle a = new_stream(), b = new_stream();
    const EventHandle event = gpu.event_create();
    std::vector<int> order;
    gpu.enqueue(a, "a", {}, [&] { order.push_back(1); });
    gpu.event_record(event, a);
    gpu.stream_wait(b, event);
    gpu.enqueue(b, "b", {}, [&] { order.push_back(2); });
    gpu.progress(100);
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
  }
}

TEST_F(SimRuntimeTest, AWaitIsForTheRecordBeforeIt) {
  const StreamHandle a = new_stream(), b = new_stream();
  const EventHandle event = gpu.event_create();
  EXPECT_TRUE(gpu.event_passed(event));  // never recorded
  gpu.event_record(event, a);
  gpu.stream_wait(b, event);
  bool late = false, ran = false;
  gpu.enqueue_polling(a, "late", {}, [&] { return late; });
  gpu.event_record(event, a);  // not what b waits for
  gpu.enqueue(b, "b", {}, [&] { ran = true; });
  gpu.progress(100);
  EXPECT_TRUE(ran);
  EXPECT_FALSE(gpu.event_passed(event));
  EXPECT_THAT(gpu.pending(), HasSubstr("late of 2"));
  late = true;
  for (int i = 0; i < 100 && !gpu.event_passed(event); ++i) {
  }
  EXPECT_TRUE(gpu.event_passed(event));
}

TEST_F(SimRuntimeTest, CopiesAndZeros) {
  const StreamHandle stream = new_stream();
  int* device = ints(4);
  auto* host = static_cast<int*>(gpu.host_alloc(16));
  for (int i = 0; i < 4; ++i) host[i] = i + 1;
  gpu.copy(stream, device, host, 16);
  gpu.zero(stream, device + 1, 8);
  gpu.copy(stream, host, device, 16);
  gpu.copy(stream, host, device, 0);
  finish(stream);
  EXPECT_EQ(std::vector<int>(host, host + 4), (std::vector<int>{1, 0, 0, 4}));
}

TEST_F(SimRuntimeTest, MemoryEndsWhereThePlanSays) {
  gpu.set_device_bytes(1 << 20);
  void* half = gpu.device_alloc(512 << 10);
  EXPECT_EQ(gpu.free_bytes(), 512 << 10);
  EXPECT_THAT([&] { gpu.device_alloc((512 << 10) + 1); },
              ThrowsMessage<Error>(HasSubstr("524288 of 1048576 bytes are free")));
  gpu.device_free(half);
  EXPECT_EQ(gpu.free_bytes(), 1 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gpu.device_alloc(100)) % 4096, 0u);
}

TEST_F(SimRuntimeTest, OnlyMemoryOfTheGpuIsTouched) {
  const StreamHandle stream = new_stream();
  int* x = ints(4);
  std::vector<int> pageable(4);
  EXPECT_THAT([&] { gpu.copy(stream, x, pageable.data(), 16); },
              ThrowsMessage<Finding>(HasSubstr("cannot reach")));
  EXPECT_THAT([&] { gpu.zero(stream, x, 20); }, ThrowsMessage<Finding>(HasSubstr("has not all of")));
  EXPECT_THAT([&] { gpu.copy(stream, x, x + 1, 8); }, ThrowsMessage<Finding>(HasSubstr("onto itself")));
  gpu.device_free(x);
  EXPECT_THAT([&] { gpu.zero(stream, x, 4); }, ThrowsMessage<Finding>(HasSubstr("cannot reach")));
}

TEST_F(SimRuntimeTest, FreeingWhatWorkIsStillToTouchIsFound) {
  const StreamHandle stream = new_stream();
  int* x = ints(4);
  gpu.zero(stream, x, 16);
  gpu.device_free(x);
  EXPECT_THAT([&] { gpu.progress(1); }, ThrowsMessage<Finding>(HasSubstr("device_free of memory that zero")));
}

TEST_F(SimRuntimeTest, WritingBehindTheEndIsFound) {
  int* x = ints(3);
  x[3] = 0;
  gpu.device_free(x);
  EXPECT_THAT([&] { gpu.progress(1); }, ThrowsMessage<Finding>(HasSubstr("behind the end of 12 bytes")));
}

TEST_F(SimRuntimeTest, AFailedDeviceSaysSo) {
  const EventHandle event = gpu.event_create();
  gpu.fail("it fell off the bus");
  EXPECT_THAT([&] { gpu.event_passed(event); }, ThrowsMessage<Error>(HasSubstr("it fell off the bus")));
}

TEST_F(SimRuntimeTest, WordsOrderStreams) {
  const StreamHandle a = new_stream(), b = new_stream();
  auto* word = static_cast<std::uint32_t*>(gpu.host_alloc(4));
  *word = 0xfffffffe;  // counts on beyond 0
  std::vector<int> order;
  gpu.wait_word(b, word, 1);
  gpu.enqueue(b, "b", {}, [&] { order.push_back(2); });
  gpu.progress(100);
  EXPECT_TRUE(order.empty());
  gpu.enqueue(a, "a", {}, [&] { order.push_back(1); });
  gpu.write_word(a, word, 1);
  gpu.progress(100);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(*word, 1u);
  int* device = ints(1);
  EXPECT_THAT([&] { gpu.write_word(a, reinterpret_cast<std::uint32_t*>(device), 1); },
              ThrowsMessage<Finding>(HasSubstr("no aligned word")));
}

TEST_F(SimRuntimeTest, RegisteredMemoryHasItsOwnAddress) {
  const StreamHandle stream = new_stream();
  void* pages = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* word = static_cast<std::uint32_t*>(pages) + 3;
  auto* seen = static_cast<std::uint32_t*>(gpu.host_register(word, 8));
  EXPECT_NE(seen, word);
  EXPECT_THAT([&] { gpu.write_word(stream, word, 5); },
              ThrowsMessage<Finding>(HasSubstr("as the GPU sees it")));
  gpu.write_word(stream, seen, 5);
  gpu.progress(10);
  EXPECT_EQ(*word, 5u);
  gpu.host_unregister(word);
  EXPECT_THAT([&] { gpu.write_word(stream, seen, 5); }, ThrowsMessage<Finding>(HasSubstr("no aligned word")));
  munmap(pages, 4096);
}

TEST_F(SimRuntimeTest, AnotherProcessReadsAndWritesItsPeersMemory) {
  auto* mine = static_cast<char*>(gpu.device_alloc(10000));
  std::strcpy(mine, "from the parent");
  const IpcHandle handle = gpu.ipc_export(mine);
  EXPECT_THAT([&] { gpu.ipc_open(handle, 10000); }, ThrowsMessage<Finding>(HasSubstr("process's own")));
  const pid_t child = fork();
  if (child == 0) {
    SimRuntime peer;
    auto* theirs = static_cast<char*>(peer.ipc_open(handle, 10000));
    const StreamHandle stream = peer.stream_create(Runtime::Priority::normal);
    void* copy = peer.device_alloc(10000);
    peer.copy(stream, copy, theirs, 10000);
    peer.zero(stream, theirs + 5000, 5000);
    peer.progress(10);
    const bool right = std::strcmp(static_cast<char*>(copy), "from the parent") == 0;
    peer.ipc_close(theirs);
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(mine[4999], static_cast<char>(0xff));
  EXPECT_EQ(mine[5000], 0);
}

TEST_F(SimRuntimeTest, ProcessesWaitForEachOthersWords) {
  void* pages = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const auto count_to_ten = [&](int me) {
    SimRuntime one(seeded(10 + me));
    auto* words = static_cast<std::uint32_t*>(one.host_register(pages, 4096));
    const StreamHandle stream = one.stream_create(Runtime::Priority::normal);
    const EventHandle event = one.event_create();
    for (std::uint32_t i = 1; i <= 10; ++i) {
      one.write_word(stream, &words[me], i);
      one.wait_word(stream, &words[1 - me], i);
    }
    one.event_record(event, stream);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!one.event_passed(event))
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  };
  const pid_t child = fork();
  if (child == 0) _exit(count_to_ten(1) ? 0 : 1);
  EXPECT_TRUE(count_to_ten(0));
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  munmap(pages, 4096);
}

/// Death tests fork: nothing of the parent's runs in the child.
TEST(SimGuardDeathTest, WhatIsNotDeclaredCannotBeTouched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Options options = seeded(1);
  options.guard = true;
  SimRuntime gpu(options);
  const StreamHandle stream = gpu.stream_create(Runtime::Priority::normal);
  auto* x = static_cast<int*>(gpu.device_alloc(3 * 4096));
  auto* y = x + 1024;  // the next page
  const auto run = [&](std::vector<Access> accesses, std::function<void()> work) {
    gpu.enqueue(stream, "work", accesses, std::move(work));
    gpu.progress(10);
  };
  run({reads(x, 4), writes(y, 4)}, [=] { *y = *x; });
  EXPECT_DEATH(run({writes(y, 4)}, [=] { *y = *x; }), "the operation work touched .* did not declare");
  EXPECT_DEATH(run({reads(x, 4)}, [=] { *x = 1; }), "the operation work touched .* did not declare");
  EXPECT_DEATH(*x = 1, "the host touched .* is the GPU's");
}

TEST_F(SimRuntimeTest, InTheBackgroundWorkRunsByItself) {
  Options options;
  options.background = true;
  SimRuntime one(options);
  const StreamHandle stream = one.stream_create(Runtime::Priority::normal);
  std::atomic<bool> ran = false;
  one.enqueue(stream, "work", {}, [&] { ran = true; });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!ran && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(ran);
}

TEST_F(SimRuntimeTest, AGraphRunsAgainAndAgain) {
  const StreamHandle stream = new_stream();
  int* x = ints(2);
  gpu.zero(stream, x, 8);
  gpu.capture_begin(stream);
  gpu.enqueue(stream, "add", {{writes(x, 4)}}, [=] { ++*x; });
  gpu.copy(stream, x + 1, x, 4);
  const GraphHandle graph = gpu.capture_end(stream);
  gpu.progress(100);
  EXPECT_EQ(x[0], 0);
  for (int i = 0; i < 3; ++i) gpu.graph_launch(graph, stream);
  gpu.graph_destroy(graph);  // what was launched still runs
  finish(stream);
  EXPECT_EQ(x[1], 3);
  EXPECT_THAT([&] { gpu.graph_launch(graph, stream); }, ThrowsMessage<Finding>(HasSubstr("no graph")));
}

TEST_F(SimRuntimeTest, WhatAGraphCannotHoldIsRefused) {
  const StreamHandle stream = new_stream(), other = new_stream();
  const EventHandle event = gpu.event_create();
  auto* word = static_cast<std::uint32_t*>(gpu.host_alloc(4));
  int* x = ints(1);
  std::vector<int> pageable(1);
  gpu.event_record(event, other);
  gpu.capture_begin(stream);
  EXPECT_THROW(gpu.stream_wait(stream, event), Finding);
  EXPECT_THROW(gpu.event_record(event, stream), Finding);
  EXPECT_THROW(gpu.event_passed(event), Finding);
  EXPECT_THROW(gpu.wait_word(stream, word, 1), Finding);
  EXPECT_THROW(gpu.write_word(stream, word, 1), Finding);
  EXPECT_THROW(gpu.copy(stream, x, pageable.data(), 4), Finding);
  EXPECT_THROW(gpu.device_alloc(4), Finding);
  EXPECT_THROW(gpu.host_alloc(4), Finding);
  EXPECT_THROW(gpu.capture_begin(other), Finding);
  EXPECT_NO_THROW(gpu.zero(stream, x, 4));
  gpu.graph_destroy(gpu.capture_end(stream));
  EXPECT_THROW(gpu.capture_end(stream), Finding);
}

TEST_F(SimRuntimeTest, AFindingOfTheWorkReachesWhoeverAsks) {
  const StreamHandle stream = new_stream();
  const EventHandle event = gpu.event_create();
  gpu.enqueue(stream, "work", {}, [] { throw Finding("on purpose"); });
  gpu.event_record(event, stream);
  EXPECT_THAT([&] { gpu.event_passed(event); }, ThrowsMessage<Finding>(HasSubstr("on purpose")));
  EXPECT_THAT([&] { gpu.event_passed(event); }, ThrowsMessage<Finding>(HasSubstr("on purpose")));
}

TEST_F(SimRuntimeTest, HandlesThatAreGoneAreFound) {
  const StreamHandle stream = new_stream();
  const EventHandle event = gpu.event_create();
  gpu.event_destroy(event);
  gpu.stream_destroy(stream);
  int* x = ints(1);
  EXPECT_THROW(gpu.event_record(event, stream), Finding);
  EXPECT_THROW(gpu.zero(stream, x, 4), Finding);
}

}  // namespace
}  // namespace holdfast::cuda::sim
