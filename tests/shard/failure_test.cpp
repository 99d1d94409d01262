// A collective that fails is heard of by whoever waits for it, and by nobody before.
#include <gtest/gtest.h>

#include <string>

#include "src/base/error.hpp"
#include "tests/shard/fake_training.hpp"

namespace holdfast::shard {
namespace {

/// One of two ranks; the other never comes. Operations named in `fails` end with an error.
class Lonely final : public comm::Communicator, tensor::Timeline {
 public:
  explicit Lonely(std::string fails) : fails_(std::move(fails)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::span<std::byte> symmetric_memory(std::int64_t) override { return {}; }
  comm::Event all_gather(std::span<const comm::Extent>, const comm::Event&) override {
    return event("gather");
  }
  comm::Event ordered_reduce_scatter(std::span<const comm::Extent>, comm::OrderedReducer&,
                                     const comm::Event&) override {
    return event("gradients");
  }
  comm::Event exchange_partial_sums(std::span<const comm::Extent>, std::int64_t, std::span<const int>,
                                    comm::OrderedReducer&, const comm::Event&) override {
    return event("partial sums");
  }
  void all_reduce(std::span<std::uint64_t>, comm::Scalar) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  std::unique_ptr<comm::Communicator> split(int, int, std::string) override { return nullptr; }
  const comm::Wire& wire() const override { return wire_; }
  void abort(std::string_view) noexcept override {}
  bool passed(std::uint64_t) const override { return false; }
  void wait(std::uint64_t) override { throw Error(Exit::runtime, fails_ + " did not finish"); }

 private:
  comm::Event event(const std::string& operation) {
    return operation == fails_ ? comm::Event{this, 1} : comm::Event{};
  }
  std::string fails_;
  comm::Wire wire_;
};

/// Rank 0 of two groups of two.
struct Failing {
  explicit Failing(const std::string& operation, config::Strategy strategy = config::Strategy::hybrid_shard)
      : layout(layout_of(odd_shape(false), mesh_of(strategy, 2, 2, 4, 0))),
        groups{std::make_unique<Lonely>(operation), std::make_unique<Lonely>(operation),
               std::make_unique<Lonely>(operation)},
        weights(layout, lanes, {}, {groups, *kernels, *kernels, stream, symmetric, own}) {
    symmetric.commit();
    own.commit();
  }
  void micro_batch() {
    for (int unit = layout.layers + 1; unit >= 0; --unit) {
      for (int stored : layout.unit_stored[unit]) weights.gradient(stored);
      weights.reduce(unit);
    }
  }
  Layout layout;
  LanePlan lanes{4, 2, 2, 2};
  Groups groups;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  tensor::InlineStream stream;
  tensor::Arena symmetric{"symmetric memory"}, own{"own memory"};
  ShardedWeights weights;
};

TEST(Failure, OfAGatherIsThrownByAcquire) {
  Failing run("gather");
  run.weights.publish();
  run.weights.begin_step();
  EXPECT_THROW(run.weights.acquire(0), Error);
}

TEST(Failure, OfAPublishIsThrownByTheGatherThatNeedsIt) {
  Failing run("gather", config::Strategy::hfsdp);
  run.weights.publish();
  EXPECT_THROW(run.weights.begin_step(), Error);
}

TEST(Failure, OfAFoldIsThrownByWhoeverNeedsTheBuffer) {
  Failing run("gradients");
  run.weights.publish();
  run.weights.begin_step();
  run.weights.reduce(4);
  run.weights.reduce(3);
  EXPECT_THROW(run.weights.gradient(run.layout.unit_stored[2][0]), Error);
}

TEST(Failure, OfAnExchangeIsThrownAtTheEndOfTheStep) {
  Failing run("partial sums");
  run.weights.publish();
  run.weights.begin_step();
  EXPECT_NO_THROW(run.micro_batch());
  EXPECT_THROW(run.weights.finish_step(), Error);
}

}  // namespace
}  // namespace holdfast::shard
