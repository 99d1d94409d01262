// CudaStream on the simulated GPU: tickets, staging, graphs, and that incomplete keys are found.
#include "src/cuda/runtime/cuda_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "src/base/allocations.hpp"
#include "src/base/error.hpp"
#include "src/cuda/simt/simt.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda {
namespace {

using sim::Finding;
using tensor::Event;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

__global__ void add_number(int* x, int number) { x[threadIdx.x] += number; }

struct CudaStreamTest : testing::Test {
  int* ints(int n) {
    auto* x = static_cast<int*>(gpu.device_alloc(n * 4));
    stream.zero(x, n * 4);
    return x;
  }
  void add(CudaStream& on, int* x, int number) {
    gpu.declare(on.handle(), "add_number", {writes(x, 4)});
    SIMT_LAUNCH(add_number, 1, 1, on.handle(), x, number);
  }
  int value(CudaStream& on, const int* x) {
    int host = 0;
    on.download(&host, x, 4);
    return host;
  }
  static StreamOptions brief() {
    StreamOptions options;
    options.limit = std::chrono::milliseconds(30);
    return options;
  }

  sim::SimRuntime gpu;
  CudaStream stream{gpu, "compute"}, side{gpu, "side"};
};

TEST_F(CudaStreamTest, TicketsPassInOrder) {
  int* x = ints(1);
  std::vector<Event> events;
  for (int i = 0; i < 3000; ++i) {  // more than the ring holds
    add(stream, x, 1);
    events.push_back(stream.record());
    if (i > 0) {
      EXPECT_GT(events[i].ticket, events[i - 1].ticket);
    }
  }
  EXPECT_FALSE(events[2999].passed());
  EXPECT_TRUE(events[0].passed());  // or the ring would have overflowed
  events[2999].wait();
  for (const Event& event : events) EXPECT_TRUE(event.passed());
  EXPECT_EQ(value(stream, x), 3000);
}

TEST_F(CudaStreamTest, StreamsWaitForEachOthersEvents) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    gpu.reseed(seed);
    int* x = ints(1);
    add(stream, x, 1);
    side.wait(stream.record());
    add(side, x, 2);
    stream.wait(side.record());
    EXPECT_EQ(value(stream, x), 3);
  }
}

TEST_F(CudaStreamTest, AForgottenWaitIsFound) {
  int* x = ints(1);
  add(stream, x, 1);
  stream.record();
  add(side, x, 2);
  EXPECT_THAT([&] { value(side, x); }, ThrowsMessage<Finding>(HasSubstr("race")));
}

TEST_F(CudaStreamTest, TheHostWaitsForTheHostsEvents) {
  struct HostLine : tensor::Timeline {
    bool passed(std::uint64_t) const override { return waited == 7; }
    void wait(std::uint64_t ticket) override { waited = ticket; }
    std::uint64_t waited = 0;
  } line;
  stream.wait({&line, 7});
  EXPECT_EQ(line.waited, 7u);
  stream.wait({});
}

TEST_F(CudaStreamTest, UploadsTakeWhatIsThereNow) {
  // Pieces of every size through both parts of the ring, from memory that changes at once.
  const std::int64_t n = 6'000'000;
  auto* device = static_cast<std::uint8_t*>(gpu.device_alloc(n));
  std::vector<std::uint8_t> expected(n), source;
  std::int64_t at = 0;
  for (std::int64_t size = 1; at < n; size = size * 3 + 1) {
    const std::int64_t bytes = std::min(size, n - at);
    source.resize(bytes);
    for (std::int64_t i = 0; i < bytes; ++i)
      expected[at + i] = source[i] = static_cast<std::uint8_t>((at + i) * 2654435761u >> 13);
    stream.upload(device + at, source.data(), bytes);
    std::fill(source.begin(), source.end(), 0xee);
    at += bytes;
  }
  for (int i = 0; i < 100; ++i) {  // small ones share a part
    stream.upload(device + 64 * i, &i, 4);
    std::memcpy(expected.data() + 64 * i, &i, 4);
  }
  std::vector<std::uint8_t> got(n);
  stream.download(got.data(), device, n);
  EXPECT_EQ(got, expected);
  stream.download(got.data(), device, 0);
}

TEST_F(CudaStreamTest, AWaitThatTakesTooLongSaysForWhat) {
  CudaStream slow(gpu, "gathers", brief());
  bool come = false;
  gpu.enqueue_polling(slow.handle(), "never", {}, [&] { return come; });
  const Event event = slow.record();
  EXPECT_THAT([&] { event.wait(); },
              ThrowsMessage<Error>(AllOf(HasSubstr("stream \"gathers\""), HasSubstr("30 ms"))));
  come = true;
}

TEST_F(CudaStreamTest, WhoeverWaitsHearsWhatOthersFound) {
  struct Found {};
  bool come = false, found = false;
  gpu.enqueue_polling(stream.handle(), "never", {}, [&] { return come; });
  int calls = 0;
  stream.on_wait([&] {
    ++calls;
    if (found || calls == 3) throw Found{};
  });
  const Event event = stream.record();
  EXPECT_THROW(event.wait(), Found);
  EXPECT_EQ(calls, 3);
  // Also behind the work: it may have been let go with wrong results.
  come = true;
  while (!event.passed()) {
  }
  found = true;
  EXPECT_THROW(event.wait(), Found);
  stream.on_wait(nullptr);
}

TEST_F(CudaStreamTest, AFailedDeviceEndsTheWait) {
  const Event event = stream.record();
  gpu.fail("it fell off the bus");
  EXPECT_THAT([&] { event.wait(); }, ThrowsMessage<Error>(HasSubstr("it fell off the bus")));
}

TEST_F(CudaStreamTest, OnlyItsOwnKindIsAccepted) {
  tensor::InlineStream host;
  EXPECT_THROW(CudaStream::of(host), std::logic_error);
  EXPECT_EQ(&CudaStream::of(static_cast<tensor::Stream&>(stream)), &stream);
}

struct Repeat : CudaStreamTest {
  void repeat(std::vector<std::uint64_t> key, int* x, int number) {
    stream.repeat(key, [&] {
      ++calls;
      add(stream, x, number);
    });
  }
  int calls = 0;
};

TEST_F(Repeat, RunsThenRecordsThenReplays) {
  sim::Options options;
  options.audit = false;
  sim::SimRuntime plain(options);
  CudaStream own(plain, "compute");
  auto* x = static_cast<int*>(plain.device_alloc(4));
  own.zero(x, 4);
  for (int i = 1; i <= 5; ++i) {
    own.repeat({{1, 2}}, [&] {
      ++calls;
      plain.declare(own.handle(), "add_number", {writes(x, 4)});
      SIMT_LAUNCH(add_number, 1, 1, own.handle(), x, 10);
    });
    EXPECT_EQ(value(own, x), 10 * i);
    EXPECT_EQ(own.graphs(), i < 2 ? 0u : 1u);
  }
  EXPECT_EQ(calls, 2);
}

TEST_F(Repeat, KeysAreToldApart) {
  int* x = ints(2);
  for (int i = 0; i < 4; ++i) {
    repeat({1}, x, 1);
    repeat({2}, x + 1, 100);
    repeat({1, 0}, x, 10);
    repeat({}, x + 1, 1000);
  }
  EXPECT_EQ(value(stream, x), 44);
  EXPECT_EQ(value(stream, x + 1), 4400);
  EXPECT_EQ(stream.graphs(), 4u);
}

TEST_F(Repeat, AnIncompleteKeyIsFound) {
  int* x = ints(2);
  for (int i = 0; i < 3; ++i) repeat({1}, x, 5);
  EXPECT_THAT([&] { repeat({1}, x, 6); },
              ThrowsMessage<Finding>(AllOf(HasSubstr("key"), HasSubstr("another argument"))));
  EXPECT_THAT([&] { repeat({1}, x + 1, 5); }, ThrowsMessage<Finding>(HasSubstr("another access")));
  EXPECT_THAT([&] { stream.repeat({{1}}, [&] { add(stream, x, 5), add(stream, x, 5); }); },
              ThrowsMessage<Finding>(HasSubstr("1 operations were recorded, now there are 2")));
  EXPECT_THAT([&] { stream.repeat({{1}}, [&] { stream.zero(x, 4); }); },
              ThrowsMessage<Finding>(HasSubstr("another name")));
  EXPECT_NO_THROW(repeat({1}, x, 5));
}

TEST_F(Repeat, InsideARecordingItIsPartOfIt) {
  int* x = ints(1);
  for (int i = 0; i < 3; ++i)
    stream.repeat({{1}}, [&] {
      repeat({2}, x, 1);
      repeat({2}, x, 1);
    });
  EXPECT_EQ(value(stream, x), 6);
}

TEST_F(Repeat, WorkThatWaitsIsRefused) {
  int* x = ints(1);
  const Event event = side.record();
  const auto refused = [&](auto&& does) {
    int key = 0;
    for (; key < 1; ++key) stream.repeat({{100}}, [&] { add(stream, x, 0); });
    EXPECT_THROW(stream.repeat({{100}}, [&] { does(); }), std::logic_error);
  };
  refused([&] { stream.wait(event); });
  refused([&] { stream.record(); });
  int host = 0;
  refused([&] { stream.upload(x, &host, 4); });
  refused([&] { stream.download(&host, x, 4); });
  // And the stream is none the worse for it.
  repeat({5}, x, 3);
  EXPECT_EQ(value(stream, x), 3);
}

TEST_F(Repeat, SwitchedOffItRemembersNothing) {
  int* x = ints(1);
  stream.use_graphs(false);
  for (int i = 0; i < 3; ++i) stream.repeat({{1}}, [] {});  // kernels that only take notes
  stream.use_graphs(true);
  for (int i = 0; i < 3; ++i) repeat({1}, x, 5);
  EXPECT_EQ(value(stream, x), 15);
}

TEST_F(Repeat, ItStopsRecordingWhenThereAreTooMany) {
  StreamOptions options;
  options.largest_number_of_graphs = 2;
  CudaStream few(gpu, "few", options);
  int* x = ints(1);
  few.wait(stream.record());
  for (std::uint64_t key = 0; key < 5; ++key)
    for (int i = 0; i < 3; ++i) few.repeat({{key}}, [&] { add(few, x, 1); });
  EXPECT_EQ(few.graphs(), 2u);
  EXPECT_EQ(value(few, x), 15);
}

/// A GPU that has done everything at once.
class InstantGpu : public Runtime {
 public:
  const GpuTraits& facts() const override { return facts_; }
  std::int64_t free_bytes() override { return 0; }
  void* device_alloc(std::int64_t) override { return nullptr; }
  void device_free(void*) noexcept override {}
  void* host_alloc(std::int64_t bytes) override { return memory_.resize(bytes), memory_.data(); }
  void host_free(void*) noexcept override {}
  void* host_register(void* memory, std::int64_t) override { return memory; }
  void host_unregister(void*) noexcept override {}
  IpcHandle ipc_export(void*) override { return {}; }
  void* ipc_open(const IpcHandle&, std::int64_t) override { return nullptr; }
  void ipc_close(void*) noexcept override {}
  StreamHandle stream_create(Priority) override { return {}; }
  void stream_destroy(StreamHandle) noexcept override {}
  EventHandle event_create() override { return {}; }
  void event_destroy(EventHandle) noexcept override {}
  void event_record(EventHandle, StreamHandle) override {}
  bool event_passed(EventHandle) override { return true; }
  void stream_wait(StreamHandle, EventHandle) override {}
  void copy(StreamHandle, void*, const void*, std::int64_t) override {}
  void zero(StreamHandle, void*, std::int64_t) override {}
  void write_word(StreamHandle, std::uint32_t*, std::uint32_t) override {}
  void wait_word(StreamHandle, const std::uint32_t*, std::uint32_t) override {}
  void declare(StreamHandle, const char*, std::initializer_list<Access>) override {}
  void capture_begin(StreamHandle) override {}
  GraphHandle capture_end(StreamHandle) override { return {}; }
  void graph_launch(GraphHandle, StreamHandle) override { ++launches; }
  void graph_destroy(GraphHandle) noexcept override {}
  int launches = 0;

 private:
  GpuTraits facts_;
  std::vector<std::byte> memory_;
};

TEST(CudaStreamSteadyState, AllocatesNothing) {
  InstantGpu gpu;
  CudaStream stream(gpu, "compute"), side(gpu, "side");
  std::vector<std::byte> host(3 << 20);
  const std::uint64_t key[] = {1, 2, 3};
  const auto step = [&] {
    stream.upload(nullptr, host.data(), static_cast<std::int64_t>(host.size()));
    stream.repeat(key, [&] { stream.zero(nullptr, 4); });
    side.wait(stream.record());
    side.copy(nullptr, host.data(), 4);
    side.record().wait();
    stream.download(host.data(), nullptr, static_cast<std::int64_t>(host.size()));
  };
  step();
  const Allocations allocations;
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(allocations.so_far(), 0u);
  EXPECT_EQ(gpu.launches, 200);
}

}  // namespace
}  // namespace holdfast::cuda
