#pragma once
// What a trainer does with its communicators, in small: on the host and on a GPU the same program, which must
// leave the same bits. Parameters are gathered, every rank makes a gradient of them, gradients are added,
// replicas exchange partial sums and gather the sums, and parameters move. Sums are of floats whose order
// matters.
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/slice.hpp"
#include "src/comm/communicator.hpp"
#include "src/comm/operation.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"
#include "tests/cuda/sim/sim_runtime.hpp"

namespace holdfast::cuda::test {

using comm::Extent;
using comm::part_of;
using tensor::Bf16;
using tensor::DType;

/// Where the program computes: `work` touches `accesses` only.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual tensor::Stream& stream() = 0;
  virtual void compute(tensor::Stream& on, std::vector<Access> accesses, std::function<void()> work) = 0;
  virtual float* memory(std::int64_t elements) = 0;  ///< of the device, zeroed
};

class HostMachine final : public Machine {
 public:
  tensor::Stream& stream() override { return stream_; }
  void compute(tensor::Stream&, std::vector<Access>, std::function<void()> work) override { work(); }
  float* memory(std::int64_t elements) override {
    return memory_.emplace_back(as_size(elements), 0.0f).data();
  }

 private:
  tensor::InlineStream stream_;
  std::vector<std::vector<float>> memory_;
};

class SimMachine final : public Machine {
 public:
  SimMachine(sim::SimRuntime& runtime, CudaStream& stream) : runtime_(runtime), stream_(stream) {}
  ~SimMachine() override {
    for (void* memory : memory_) runtime_.device_free(memory);
  }
  tensor::Stream& stream() override { return stream_; }
  void compute(tensor::Stream& on, std::vector<Access> accesses, std::function<void()> work) override {
    runtime_.enqueue(CudaStream::of(on).handle(), "compute", accesses, std::move(work));
  }
  float* memory(std::int64_t elements) override {
    memory_.push_back(runtime_.device_alloc(elements * 4));
    stream_.zero(memory_.back(), elements * 4);
    return static_cast<float*>(memory_.back());
  }

 private:
  sim::SimRuntime& runtime_;
  CudaStream& stream_;
  std::vector<void*> memory_;
};

/// sum = a0 + a1 + ... in this order, or with `add` sum + a0 + a1 + ...
class OrderedSum final : public comm::OrderedReducer {
 public:
  OrderedSum(Machine& machine, std::vector<float*> sums, DType type, bool add)
      : machine_(machine), sums_(std::move(sums)), type_(type), add_(add) {}
  void reduce(tensor::Stream& stream, int tensor, std::int64_t first, std::int64_t count,
              std::span<const void* const> sources) override {
    float* sum = sums_[tensor] + first;
    std::vector<Access> accesses{writes(sum, count * 4)};
    for (const void* source : sources) accesses.push_back(reads(source, count * bytes_of(type_)));
    machine_.compute(
        stream, std::move(accesses),
        [sum, count, type = type_, add = add_, all = std::vector(sources.begin(), sources.end())] {
          for (std::int64_t i = 0; i < count; ++i) {
            float x = add ? sum[i] : 0.0f;
            for (const void* source : all)
              x += type == DType::fp32 ? static_cast<const float*>(source)[i]
                                       : to_float(static_cast<const Bf16*>(source)[i]);
            sum[i] = x;
          }
        });
    ++reductions;
    if (count > largest) largest = count;
  }
  int reductions = 0;
  std::int64_t largest = 0;

 private:
  Machine& machine_;
  const std::vector<float*> sums_;
  const DType type_;
  const bool add_;
};

struct ProgramResult {
  std::vector<std::vector<float>> parameters;  ///< this rank's slice of each tensor
  comm::Wire gathers, reductions, replicas;
  bool operator==(const ProgramResult& other) const {
    if (gathers != other.gathers || reductions != other.reductions || replicas != other.replicas)
      return false;
    for (std::size_t t = 0; t < parameters.size(); ++t)
      if (parameters[t].size() != other.parameters[t].size() ||
          (!parameters[t].empty() &&
           std::memcmp(parameters[t].data(), other.parameters[t].data(), parameters[t].size() * 4) != 0))
        return false;
    return true;
  }
};

/// `members` ranks hold a copy of the parameters; the world's size is a multiple of them. `memory` is
/// symmetric.
class Program {
 public:
  static constexpr int nodes_most = 2;

  Program(Machine& machine, comm::Communicator& world, int members, DType gradient_type)
      : machine_(machine),
        members_(members),
        replicas_(world.size() / members),
        member_(world.rank() % members),
        replica_(world.rank() / members),
        gradient_type_(gradient_type),
        gathers_(world.split(replica_, member_, "the gathers")),
        reductions_(world.split(replica_, member_, "the reductions")),
        replicas_group_(world.split(member_, replica_, "the replicas")) {
    std::int64_t elements = 0;
    for (const std::int64_t n : sizes) elements += slice_stride(n, members_, replicas_) * members_;
    array_stride_ = elements / members_;
    std::span<std::byte> memory = world.symmetric_memory(elements * 4 * 2 + array_stride_ * 4 * nodes_most);
    const auto take = [&](std::int64_t bytes) {
      std::byte* at = memory.data();
      memory = memory.subspan(bytes);
      return at;
    };
    for (const std::int64_t n : sizes) {
      const std::int64_t stride = slice_stride(n, members_, replicas_);
      whole_.push_back({take(stride * members_ * 4), n, stride, DType::fp32});
      gradients_.push_back({take(stride * members_ * 4), n, stride, gradient_type_});
    }
    for (const std::int64_t n : sizes) {
      const std::int64_t stride = slice_stride(n, members_, replicas_);
      sums_.push_back({take(stride * 4), slice_of(n, members_, member_, replicas_).count,
                       slice_part(n, members_, replicas_), DType::fp32});
    }
    for (std::size_t t = 0; t < whole_.size(); ++t) {
      accumulators_.push_back(static_cast<float*>(sums_[t].data));
      parts_.push_back(machine_.memory(std::max<std::int64_t>(1, sums_[t].part)));
      parameters_.push_back(machine_.memory(std::max<std::int64_t>(1, sums_[t].elements)));
      start(t);
    }
    take(array_stride_ * 4);  // the second partial sum, behind all of the first
    for (int replica = 0; replica < replicas_; ++replica) sums_of_.push_back(1 + replica % nodes_most);
  }

  void step(int number, bool waits) {
    gather();
    gradient(number);
    OrderedSum gradients(machine_, accumulators_, gradient_type_, false);
    // Not kept longer than the call on a GPU, but on the host until the event.
    const tensor::Event reduced =
        reductions_->ordered_reduce_scatter(gradients_, gradients, machine_.stream().record());
    machine_.stream().wait(reduced);
    second_node();
    OrderedSum partial_sums(machine_, parts_, DType::fp32, false);
    const tensor::Event exchanged = replicas_group_->exchange_partial_sums(
        sums_, array_stride_, sums_of_, partial_sums, machine_.stream().record());
    machine_.stream().wait(exchanged);
    own_sum();
    machine_.stream().wait(replicas_group_->all_gather(sums_, machine_.stream().record()));
    update();
    if (waits) machine_.stream().record().wait();
  }

  ProgramResult result() {
    ProgramResult out{{}, gathers_->wire(), reductions_->wire(), replicas_group_->wire()};
    for (std::size_t t = 0; t < parameters_.size(); ++t) {
      out.parameters.emplace_back(as_size(sums_[t].elements));
      machine_.stream().download(out.parameters[t].data(), parameters_[t], sums_[t].elements * 4);
    }
    return out;
  }

 private:
  // Odd sizes, empty parts, and one whose parts are added in pieces.
  static constexpr std::int64_t sizes[] = {1, 63, 65, 1003, 7001, 140'003};

  void start(std::size_t t) {
    float* to = parameters_[t];
    const std::int64_t n = sums_[t].elements, first = member_ * whole_[t].part;
    machine_.compute(machine_.stream(), {writes(to, n * 4)}, [=] {
      for (std::int64_t i = 0; i < n; ++i) to[i] = 1.0f / static_cast<float>(3 + (first + i) * 7 % 1009);
    });
  }
  void gather() {
    for (std::size_t t = 0; t < whole_.size(); ++t)
      machine_.stream().copy(static_cast<float*>(whole_[t].data) + member_ * whole_[t].part, parameters_[t],
                             sums_[t].elements * 4);
    machine_.stream().wait(gathers_->all_gather(whole_, machine_.stream().record()));
  }
  void gradient(int number) {
    const int rank = replica_ * members_ + member_;
    for (std::size_t t = 0; t < whole_.size(); ++t) {
      const auto* x = static_cast<const float*>(whole_[t].data);
      void* to = gradients_[t].data;
      const std::int64_t n = whole_[t].elements;
      machine_.compute(machine_.stream(), {reads(x, n * 4), writes(to, n * bytes_of(gradient_type_))},
                       [=, type = gradient_type_] {
                         for (std::int64_t i = 0; i < n; ++i) {
                           const float y =
                               x[(i + rank + number) % n] * (0.1f + 0.37f * static_cast<float>(rank)) -
                               1e-3f * static_cast<float>((i * 31 + rank) % 17);
                           if (type == DType::fp32)
                             static_cast<float*>(to)[i] = y;
                           else
                             static_cast<Bf16*>(to)[i] = tensor::to_bf16(y);
                         }
                       });
    }
  }
  /// A replica with two partial sums brings half of its sum twice, the second time a little off.
  void second_node() {
    if (sums_of_[replica_] < 2) return;
    for (std::size_t t = 0; t < whole_.size(); ++t) {
      float *first = accumulators_[t], *second = first + array_stride_;
      const std::int64_t n = sums_[t].elements;
      machine_.compute(machine_.stream(), {reads(first, n * 4), writes(second, n * 4)}, [=] {
        for (std::int64_t i = 0; i < n; ++i) second[i] = first[i] * 0.999f;
      });
    }
  }
  /// My part of the sum takes the place of my part of my first partial sum.
  void own_sum() {
    for (std::size_t t = 0; t < sums_.size(); ++t)
      machine_.stream().copy(accumulators_[t] + replica_ * sums_[t].part, parts_[t],
                             part_of(sums_[t], replica_) * 4);
  }
  void update() {
    for (std::size_t t = 0; t < sums_.size(); ++t) {
      float* x = parameters_[t];
      const float* sum = accumulators_[t];
      const std::int64_t n = sums_[t].elements;
      machine_.compute(machine_.stream(), {writes(x, n * 4), reads(sum, n * 4)}, [=] {
        for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * 0.97f - 0.01f * sum[i];
      });
    }
  }

  Machine& machine_;
  const int members_, replicas_, member_, replica_;
  const DType gradient_type_;
  std::unique_ptr<comm::Communicator> gathers_, reductions_, replicas_group_;
  std::int64_t array_stride_ = 0;
  std::vector<Extent> whole_, gradients_, sums_;
  std::vector<float*> accumulators_, parts_, parameters_;
  std::vector<int> sums_of_;
};

/// The program on the host: what a GPU must equal.
inline ProgramResult host_program(comm::Communicator& world, int members, DType gradient_type, int steps) {
  HostMachine machine;
  Program program(machine, world, members, gradient_type);
  for (int i = 0; i < steps; ++i) program.step(i, true);
  return program.result();
}

}  // namespace holdfast::cuda::test
