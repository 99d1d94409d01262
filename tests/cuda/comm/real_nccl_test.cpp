// What we do with NCCL, on a stand-in for the library.
#include "src/cuda/comm/real_nccl.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"

namespace holdfast::cuda {
namespace {

using ::testing::HasSubstr;

constexpr auto long_ = std::chrono::seconds(60);

class RealNcclTest : public ::testing::Test {
 protected:
  template <class Function>
  static Function* of_stand_in(const char* name) {
    static void* const library = ::dlopen(HOLDFAST_NCCL_STAND_IN, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function*>(::dlsym(library, name));
  }
  static int misuses() { return of_stand_in<int()>("stand_in_misuses")(); }
  static int questions() { return of_stand_in<int()>("stand_in_questions")(); }
  static int alive() { return of_stand_in<int()>("stand_in_alive")(); }

  NcclHandle connect() { return nccl_->init({}, 2, 0, "the group", long_); }
  template <class Call>
  static std::string error_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const std::unique_ptr<Nccl> nccl_ = make_real_nccl(HOLDFAST_NCCL_STAND_IN);
};

/// One that is not there, or is too old, matters to nobody who does not use it.
TEST_F(RealNcclTest, IsOpenedByWhoNeedsItAndNotBefore) {
  const auto missing = make_real_nccl("/nowhere/libnccl.so.2");
  EXPECT_THAT(error_of([&] { missing->version(); }),
              AllOf(HasSubstr("NCCL cannot be loaded"), HasSubstr("/nowhere/libnccl.so.2")));
  const auto set_version = of_stand_in<void(int)>("stand_in_version");
  const int version = nccl_->version();
  set_version(21800);
  const auto old = make_real_nccl(HOLDFAST_NCCL_STAND_IN);
  EXPECT_THAT(error_of([&] { old->version(); }), HasSubstr("this NCCL is too old (version 2.18.0"));
  set_version(version);
}

/// The watch gives up a communicator that the caller's thread is waiting for: that wait ends, and asks the
/// library for nothing that it has freed.
TEST_F(RealNcclTest, AWaitForACommunicatorThatIsAbortedEndsAndTouchesItNoMore) {
  for (int round = 0; round < 50; ++round) {
    const NcclHandle comm = connect();
    const int asked = questions();
    auto waiting = std::async(std::launch::async, [&] {
      return error_of([&] {
        nccl_->begin();
        nccl_->all_gather(comm, {}, nullptr, 1);
        nccl_->end(comm, long_);
      });
    });
    const Deadline deadline = Deadline::in(long_);
    while (questions() == asked && !deadline.passed()) std::this_thread::yield();  // it waits
    nccl_->abort(comm, long_);
    ASSERT_EQ(waiting.wait_for(long_ / 2), std::future_status::ready);
    EXPECT_THAT(waiting.get(),
                HasSubstr("ncclGroupEnd of NCCL cannot be done (its communicator was given up)"));
    EXPECT_EQ(nccl_->trouble(comm), "its communicator was given up");
    EXPECT_THAT(error_of([&] { nccl_->send(comm, {}, nullptr, 1, 1); }), HasSubstr("was given up"));
    EXPECT_FALSE(nccl_->register_memory(comm, nullptr, 1));
    nccl_->abort(comm, long_), nccl_->destroy(comm, long_);  // once is enough
    ASSERT_EQ(misuses(), 0) << "round " << round;
  }
  EXPECT_EQ(alive(), 0);
}

TEST_F(RealNcclTest, AWaitEndsAtItsLimitAndTheCommunicatorIsStillThere) {
  const NcclHandle comm = connect();
  nccl_->begin();
  EXPECT_THAT(error_of([&] { nccl_->end(comm, std::chrono::milliseconds(50)); }),
              HasSubstr("ncclGroupEnd of NCCL did not finish within 0.05 s"));
  EXPECT_EQ(nccl_->trouble(comm), "");
  EXPECT_EQ(alive(), 1);
  nccl_->destroy(comm, long_);
  EXPECT_EQ(alive(), 0);
  EXPECT_EQ(misuses(), 0);
}

}  // namespace
}  // namespace holdfast::cuda
