#pragma once
// What a communicator of GPUs owes whoever calls it, the same for peers and for NCCL. Every test includes the
// simulator's own checks: of races between streams, and of memory that a GPU could not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/comm/communicator_program.hpp"
#include "tests/cuda/comm/gpu_ranks.hpp"

namespace holdfast::cuda::test {

class DeviceCommunicators : public ::testing::TestWithParam<Case> {
 protected:
  GpuRank::Options options(std::uint64_t seed = 1) const {
    GpuRank::Options out;
    out.ranks_per_node = GetParam().ranks_per_node;
    out.one_gpu = GetParam().one_gpu;
    out.seed = seed;
    return out;
  }
  const int rank_ = tests::session().rank(), size_ = tests::session().size();
};

/// Puts floats into device memory and takes them out again.
inline void put(CudaStream& stream, void* to, const std::vector<float>& values) {
  stream.upload(to, values.data(), static_cast<std::int64_t>(values.size() * 4));
}
inline std::vector<float> get(CudaStream& stream, const void* from, std::int64_t elements) {
  std::vector<float> out(elements);
  stream.download(out.data(), from, elements * 4);
  return out;
}

TEST_P(DeviceCommunicators, TheTrainersOperationsLeaveTheHostsBits) {
  for (const DType type : {DType::fp32, DType::bf16})
    for (int members = 1; members <= size_; ++members) {
      if (size_ % members != 0) continue;
      constexpr int steps = 3;
      const auto host_world = tests::session().world({.limit = std::chrono::seconds(60)});
      const ProgramResult expected = host_program(*host_world, members, type, steps);
      // Never waiting lets the streams run as far apart as they can.
      for (const bool waits : {true, false}) {
        GpuRank gpu(options(static_cast<std::uint64_t>(members) * 2 + waits));
        const auto world = gpu.world();
        SimMachine machine(gpu.runtime, gpu.compute);
        Program program(machine, *world, members, type);
        for (int i = 0; i < steps; ++i) program.step(i, waits);
        const ProgramResult result = program.result();
        EXPECT_TRUE(result == expected) << members << " members, waits: " << waits;
        EXPECT_EQ(world->wire().total(), 0) << "set-up is not counted";
      }
    }
}

TEST_P(DeviceCommunicators, AllGatherFillsInThePartsOfOthers) {
  GpuRank gpu(options());
  const auto world = gpu.world();
  auto* memory = reinterpret_cast<float*>(world->symmetric_memory(4 << 20).data());
  EXPECT_EQ(get(gpu.compute, memory, 1 << 20), std::vector<float>(1 << 20, 0.0f)) << "it begins zeroed";
  std::vector<Extent> tensors;
  for (const std::int64_t n : {0, 1, 64, 65, 10'007, 100'003}) {
    tensors.push_back({memory, n, slice_stride(n, size_), DType::fp32});
    memory += tensors.back().part * size_;
    std::vector<float> own(part_of(tensors.back(), rank_));
    for (std::size_t i = 0; i < own.size(); ++i)
      own[i] = static_cast<float>(rank_ * tensors.back().part) + static_cast<float>(i) + 0.5f;
    put(gpu.compute, static_cast<float*>(tensors.back().data) + rank_ * tensors.back().part, own);
  }
  const tensor::Event gathered = world->all_gather(tensors, gpu.compute.record());
  gathered.wait();
  EXPECT_TRUE(gathered.passed());
  std::int64_t bytes = 0;
  for (const Extent& tensor : tensors) {
    const std::vector<float> all = get(gpu.compute, tensor.data, tensor.elements);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < tensor.elements; ++i) wrong += all[i] != static_cast<float>(i) + 0.5f;
    EXPECT_EQ(wrong, 0) << tensor.elements;
    bytes += part_of(tensor, rank_) * 4 * (size_ - 1);
  }
  EXPECT_EQ(world->wire().all_gather, bytes);
}

/// More operations than a group keeps, without a look at any of them.
TEST_P(DeviceCommunicators, ManyOperationsInFlight) {
  GpuRank gpu(options());
  const auto world = gpu.world();
  auto* memory = reinterpret_cast<float*>(world->symmetric_memory(1 << 16).data());
  const Extent tensor{memory, 64 * size_, 64, DType::fp32};
  tensor::Event last;
  constexpr int times = 600;
  for (int i = 0; i < times; ++i) {
    gpu.runtime.enqueue(gpu.compute.handle(), "count", {{writes(memory + 64 * rank_, 256)}},
                        [mine = memory + 64 * rank_] { *mine += 1; });
    last = world->all_gather({&tensor, 1}, gpu.compute.record());
    gpu.compute.wait(last);
  }
  last.wait();
  for (int r = 0; r < size_; ++r) EXPECT_EQ(get(gpu.compute, memory + 64 * r, 1)[0], times);
}

TEST_P(DeviceCommunicators, SmallOperationsAndGroupsAreTheHosts) {
  GpuRank gpu(options());
  const auto world = gpu.world();
  EXPECT_EQ(world->rank(), rank_);
  EXPECT_EQ(world->size(), size_);
  std::uint64_t words[] = {static_cast<std::uint64_t>(rank_)};
  world->all_reduce(words, comm::Scalar::sum);
  EXPECT_EQ(words[0], static_cast<std::uint64_t>(size_ * (size_ - 1) / 2));
  world->broadcast(std::as_writable_bytes(std::span(words)), size_ - 1);
  world->barrier();
  EXPECT_EQ(world->wire().all_reduce, size_ == 1 ? 0 : 8);
  EXPECT_EQ(world->wire().broadcast, size_ > 1 && rank_ == size_ - 1 ? 8 : 0);
  const auto reversed = world->split(0, -rank_, "reversed");
  EXPECT_EQ(reversed->rank(), size_ - 1 - rank_);
  EXPECT_EQ(reversed->wire().total(), 0);
}

TEST_P(DeviceCommunicators, TheFlightRecordTellsOfBulkOperations) {
  const std::uint64_t before = tests::session().flight().finished();
  GpuRank gpu(options());
  const auto world = gpu.world();
  const auto group = world->split(0, rank_, "recorded");
  auto* memory = world->symmetric_memory(1 << 16).data();
  const Extent tensor{memory, 100, slice_stride(100, size_), DType::fp32};
  group->all_gather({&tensor, 1}).wait();
  int found = 0;
  for (std::uint64_t i = before; i < tests::session().flight().finished(); ++i) {
    const auto entry = tests::session().flight().finished(i);
    if (!entry || entry->operation != flight::Collective::all_gather ||
        std::string(entry->name) != "recorded")
      continue;
    if (entry->bytes == 0 && size_ > 1 && part_of(tensor, rank_) > 0) continue;  // NCCL's trial
    ++found;
    EXPECT_EQ(entry->state, flight::FlightState::finished);
    EXPECT_EQ(entry->bytes, part_of(tensor, rank_) * 4 * (size_ - 1));
    EXPECT_TRUE(entry->enqueued_ns <= entry->started_ns && entry->started_ns <= entry->finished_ns);
  }
  EXPECT_GE(found, 1);
}

TEST_P(DeviceCommunicators, TensorsOutsideOfSymmetricMemoryAreTheProgrammersFault) {
  if (size_ == 1) GTEST_SKIP() << "alone any memory will do";
  GpuRank gpu(options());
  const auto world = gpu.world();
  auto* memory = world->symmetric_memory(4096).data();
  const Extent outside{memory + 4096, 64, 64, DType::fp32}, too_long{memory, 2048, 2048, DType::fp32};
  EXPECT_THROW(world->all_gather({&outside, 1}), std::logic_error);
  EXPECT_THROW(world->all_gather({&too_long, 1}), std::logic_error);
  EXPECT_THROW(world->symmetric_memory(1), std::logic_error);
}

}  // namespace holdfast::cuda::test
