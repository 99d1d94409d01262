// The home of a rank's state in host memory: who may change which buffer when. local_level_test.cpp has what
// is particular to a local level.
#include "src/train/local/snapshots.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/config/snapshot_buffers.hpp"

namespace holdfast::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LocalRun tiny_run() {
  config::ModelShape shape;
  shape.name = "tiny";
  shape.vocabulary = 16;
  shape.width = 8;
  shape.layers = 1;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.ffn = 16;
  shape.max_sequence = 8;
  return local_run_of({}, shape, shard::mesh_of(config::Strategy::no_shard, 0, 1, 1, 0), "", "");
}

/// A stream that does nothing until somebody waits for it, as a GPU that is busy.
class LazyStream final : public tensor::InlineStream, public tensor::Timeline {
 public:
  LazyStream(std::string name, std::vector<std::string>& log) : name_(std::move(name)), log_(log) {}
  tensor::Event record() override { return {this, ++recorded_}; }
  void wait(const tensor::Event& event) override {
    work_.emplace_back([this, event] { log_.push_back(name_ + " waits"), event.wait(); });
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    work_.emplace_back([=, this] {
      log_.push_back(name_ + " copies");
      std::memcpy(to, from, as_size(bytes));
    });
  }
  bool passed(std::uint64_t) const override { return work_.empty(); }
  void wait(std::uint64_t) override {
    for (const auto& work : std::exchange(work_, {})) work();
    log_.push_back(name_ + " is there");
  }

 private:
  std::string name_;
  std::vector<std::string>& log_;
  std::vector<std::function<void()>> work_;
  std::uint64_t recorded_ = 0;
};

struct LazyDevice final : device::Device {
  explicit LazyDevice(std::vector<std::string>& log) : compute_("compute", log), side_("side", log) {}
  std::string describe() const override { return "lazy"; }
  bool is_host() const override { return false; }
  kernels::Kernels& kernels() override { return host->kernels(); }
  kernels::Kernels& reduce_kernels() override { return host->reduce_kernels(); }
  tensor::Stream& compute() override { return compute_; }
  tensor::Stream& side() override { return side_; }
  std::span<std::byte> allocate(std::int64_t n, std::string_view what) override {
    return host->allocate(n, what);
  }
  std::span<std::byte> allocate_host(std::int64_t n, std::string_view what) override {
    return host->allocate_host(n, what);
  }
  std::byte* pin(std::span<std::byte> memory) override {
    if (refuses) throw Error(Exit::runtime, "no pinned host memory");
    ++pinned;
    return memory.data();
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> group) override {
    return group;
  }
  void replay(bool) override {}
  void take_notes(bool) override {}
  std::string choices(std::string_view) override { return ""; }
  void use_choices(std::string_view) override {}
  std::unique_ptr<device::Device> host = device::make_cpu_device({.threads = 1});
  LazyStream compute_, side_;
  std::atomic<int> pinned = 0;
  std::atomic<bool> refuses = false;
};

TEST(SnapshotBuffers, AreAsManyAsTheirReadersNeed) {
  using config::snapshot_buffers;
  EXPECT_EQ(snapshot_buffers({.local = true}), 3);
  EXPECT_EQ(snapshot_buffers({.local = true, .gpu = true}), 3);
  EXPECT_EQ(snapshot_buffers({.local = true, .rarer_partner_copies = true}), 4);
  EXPECT_EQ(snapshot_buffers({}), 2);
  EXPECT_EQ(snapshot_buffers({.gpu = true}), 1);
}

class HostMemory : public ::testing::Test {
 protected:
  void update(int value) {
    snapshots_->join();
    const auto next = snapshots_->next();
    std::memset((next.empty() ? live_ : next).data(), value, live_.size());
    if (!next.empty()) snapshots_->moved();
  }
  int value_in(int buffer) const { return std::to_integer<int>(snapshots_->buffer(buffer).front()); }

  const LocalRun run_ = tiny_run();
  std::vector<std::byte> a_ = std::vector<std::byte>(as_size(buffer_shape_of(run_, 0).bytes)), b_ = a_;
  std::span<std::byte> live_;
  const std::unique_ptr<Snapshots> snapshots_ =
      make_host_snapshots({run_, 0, {}, {a_, b_}, 1, [this](auto buffer) { live_ = buffer; }});
};

TEST_F(HostMemory, TheStateMovesOnlyForASave) {
  EXPECT_FALSE(snapshots_->local());
  const auto* const first = live_.data();
  update(1), update(2);
  EXPECT_EQ(live_.data(), first);
  const int held = snapshots_->hold().buffer;
  EXPECT_EQ(snapshots_->buffer(held).data(), first);
  update(3), update(4);
  EXPECT_NE(live_.data(), first);
  EXPECT_EQ(value_in(held), 2);
  EXPECT_TRUE(snapshots_->holds());
  snapshots_->release();
  EXPECT_FALSE(snapshots_->holds());
  const auto* const second = live_.data();
  update(5);
  EXPECT_EQ(live_.data(), second) << "it stays where it is";
  EXPECT_EQ(value_in(snapshots_->hold().buffer), 5);
  update(6);
  EXPECT_EQ(live_.data(), first);
}

TEST_F(HostMemory, AStateThatDidNotChangeIsHeldAgainWhereItIs) {
  update(1);
  const int held = snapshots_->hold().buffer;
  snapshots_->release();
  EXPECT_EQ(snapshots_->hold().buffer, held);
  EXPECT_THROW(snapshots_->hold(), std::logic_error);
}

class OneBufferOfAGpu : public ::testing::Test {
 protected:
  std::vector<std::string> log_;
  LazyDevice gpu_{log_};
  const LocalRun run_ = tiny_run();
  const BufferShape shape_ = buffer_shape_of(run_, 0);
  std::vector<std::byte> state_ = std::vector<std::byte>(as_size(shape_.bytes)), newer_ = state_,
                         buffer_ = state_;
  const std::unique_ptr<Snapshots> snapshots_ =
      make_device_snapshots({run_, 0, {}, {buffer_}, 1, {}}, gpu_,
                            {reinterpret_cast<float*>(state_.data()), state_.data() + shape_.exp_avg,
                             state_.data() + shape_.exp_avg_sq});
};

TEST_F(OneBufferOfAGpu, IsPinnedOnceAndNotBeforeItIsNeeded) {
  snapshots_->next();
  snapshots_->join();
  EXPECT_FALSE(snapshots_->ready());
  EXPECT_EQ(gpu_.pinned, 0);
  snapshots_->prepare();
  snapshots_->get_ready();
  EXPECT_TRUE(snapshots_->ready());
  EXPECT_EQ(gpu_.pinned, 1);
  snapshots_->prepare();  // as after a rollback
  snapshots_->hold().copied.wait();
  EXPECT_EQ(gpu_.pinned, 1);
}

TEST_F(OneBufferOfAGpu, WhatCannotBePinnedIsToldByAStepSoonAfterTheStart) {
  gpu_.refuses = true;
  snapshots_->prepare();
  const auto told = [this] {
    try {
      snapshots_->join();
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  std::string text;
  for (const auto deadline = Deadline::in(std::chrono::seconds(20)); text.empty() && !deadline.passed();)
    text = told();
  EXPECT_THAT(text, ::testing::HasSubstr("no pinned host memory"));
}

TEST_F(OneBufferOfAGpu, TheCopyIsBehindTheOptimizerAndTheNextUpdateBehindTheCopy) {
  std::ranges::fill(newer_, std::byte{9});
  snapshots_->next();
  gpu_.compute().copy(state_.data(), newer_.data(), shape_.bytes);  // the optimizer step
  const Snapshots::Held held = snapshots_->hold();
  EXPECT_THAT(log_, IsEmpty()) << "hold() waits for the GPU";
  held.copied.wait();
  EXPECT_THAT(log_, ElementsAre("side waits", "compute copies", "compute is there", "side copies",
                                "side copies", "side copies", "side is there"));
  EXPECT_EQ(buffer_.front(), std::byte{9});
  EXPECT_EQ(buffer_[as_size(shape_.exp_avg_sq)], std::byte{9});
  log_.clear();
  snapshots_->join();
  EXPECT_THAT(log_, IsEmpty()) << "join() waits for the GPU";
  gpu_.compute().record().wait();
  EXPECT_EQ(log_.front(), "compute waits") << "what changes the state is behind the copy";
}

TEST_F(OneBufferOfAGpu, WhatIsHeldIsNotWrittenOverAndAnUnchangedStateNotCopiedAgain) {
  snapshots_->next();
  snapshots_->hold().copied.wait();
  snapshots_->release();
  log_.clear();
  const auto again = snapshots_->hold();
  again.copied.wait();
  EXPECT_THAT(log_, ElementsAre("side is there")) << "nothing changed";
  snapshots_->next();
  EXPECT_THROW(snapshots_->hold(), std::logic_error);
}

TEST_F(OneBufferOfAGpu, ARestoreFillsItAndTheDeviceTakesItOver) {
  std::ranges::fill(buffer_, std::byte{4});
  snapshots_->adopt(0);
  EXPECT_EQ(state_.front(), std::byte{4});
  EXPECT_EQ(state_[as_size(shape_.exp_avg_sq)], std::byte{4});
  log_.clear();
  snapshots_->hold().copied.wait();
  EXPECT_THAT(log_, ::testing::Not(::testing::Contains("side copies"))) << "the buffer has it already";
}

}  // namespace
}  // namespace holdfast::train
