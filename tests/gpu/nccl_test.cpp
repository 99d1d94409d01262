// NCCL itself, as far as one GPU goes: a group of one, which sends to itself, and one whose other member
// never comes.
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/cuda/comm/real_nccl.hpp"
#include "tests/cuda/test_gpu.hpp"

namespace holdfast::cuda {
namespace {

constexpr auto limit = std::chrono::seconds(60);

class NcclAlone : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      nccl_->version();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  const std::unique_ptr<Nccl> nccl_ = make_real_nccl();
};

TEST_F(NcclAlone, GathersSendsToItselfAndEnds) {
  constexpr std::int64_t bytes = 1 << 20;
  std::vector<std::byte> content(2 * bytes);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = std::byte(static_cast<unsigned char>(i * 31));
  const test::DeviceArray<std::byte> memory(content);
  std::byte* const data = const_cast<std::byte*>(memory.data());
  const NcclHandle comm = nccl_->init(nccl_->unique_id(), 1, 0, "alone", limit);
  EXPECT_EQ(nccl_->trouble(comm), "");
  nccl_->register_memory(comm, data, 2 * bytes);
  nccl_->begin();
  nccl_->all_gather(comm, test::stream(), data, bytes);
  nccl_->end(comm, limit);
  nccl_->begin();
  nccl_->send(comm, test::stream(), data, bytes, 0);
  nccl_->receive(comm, test::stream(), data + bytes, bytes, 0);
  nccl_->end(comm, limit);
  test::finish();
  const auto after = memory.download();
  for (std::size_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(after[i], content[i]) << i;
    ASSERT_EQ(after[i + bytes], content[i]) << i;
  }
  nccl_->destroy(comm, limit);
  EXPECT_NE(nccl_->trouble(comm), "") << "it is gone";
}

TEST_F(NcclAlone, DoesNotWaitForEverForAMemberThatNeverComes) {
  EXPECT_THROW(nccl_->init(nccl_->unique_id(), 2, 0, "half", std::chrono::seconds(3)), Error);
}

}  // namespace
}  // namespace holdfast::cuda
