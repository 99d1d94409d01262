#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/comm/solo_communicator.hpp"
#include "src/device/device.hpp"

namespace holdfast::device {
namespace {

using ::testing::HasSubstr;

TEST(CpuDevice, MemoryIsZeroedAlignedAndStays) {
  auto device = make_cpu_device({.threads = 2});
  std::vector<std::span<std::byte>> pieces;
  for (const std::int64_t bytes : {0, 1, 4095, 4096, 100'000, (2 << 20) - 1, 2 << 20, (5 << 20) + 3}) {
    pieces.push_back(device->allocate(bytes, "a test"));
    ASSERT_EQ(pieces.back().size(), as_size(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back().data()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(pieces.back().begin(), pieces.back().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::fill(pieces.back().begin(), pieces.back().end(), static_cast<std::byte>(pieces.size()));
  }
  // Later allocations lie elsewhere and move nothing.
  for (std::size_t i = 0; i < pieces.size(); ++i)
    EXPECT_TRUE(std::all_of(pieces[i].begin(), pieces[i].end(),
                            [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
}

TEST(CpuDevice, WhatDoesNotFitIsSaidWithSizeAndPurpose) {
  auto device = make_cpu_device({.threads = 1});
  try {
    device->allocate(std::int64_t{1} << 60, "activations");
    FAIL() << "an exabyte was given";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::runtime);
    EXPECT_THAT(error.what(), HasSubstr("no memory for activations (1152921504606846976 bytes)"));
    EXPECT_THAT(error.why(), HasSubstr("bytes are available"));
  }
}

TEST(CpuDevice, StreamsRunInlineAndTheHostsCommunicatorIsItsOwn) {
  auto device = make_cpu_device({.threads = 2});
  EXPECT_EQ(device->describe(), "CPU, 2 threads");
  EXPECT_EQ(make_cpu_device({.threads = 1})->describe(), "CPU, 1 thread");
  EXPECT_TRUE(device->is_host());
  const int from[3] = {1, 2, 3};
  int to[3] = {};
  device->compute().upload(to, from, sizeof to);
  EXPECT_TRUE(std::equal(from, from + 3, to));
  EXPECT_TRUE(device->side().record().passed());
  auto host = std::make_unique<comm::SoloCommunicator>();
  comm::Communicator* const was = host.get();
  auto same = device->communicator(std::move(host));
  EXPECT_EQ(same.get(), was);
}

TEST(CpuDevice, HasNothingToChoose) {
  auto device = make_cpu_device({.threads = 1});
  EXPECT_EQ(device->choices(""), "");
  device->use_choices("");
  try {
    device->use_choices("{}");
    FAIL() << "choices of another device were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
  }
  EXPECT_EQ(device->kernels().identity(tensor::DType::bf16),
            kernels::make_cpu_kernels(1)->identity(tensor::DType::bf16));
}

}  // namespace
}  // namespace holdfast::device
