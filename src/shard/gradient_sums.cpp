#include "src/shard/gradient_sums.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::shard {

GradientSums::GradientSums(const Layout& layout, const LanePlan& lanes, const Policy& policy,
                           const MemoryPlan& memory, const Resources& resources)
    : layout_(layout),
      policy_(policy),
      r_(resources),
      kept_(lanes.accumulators()),
      added_at_once_(memory.added_at_once),
      lane_sources_(as_size(layout.mesh.group)) {
  const Mesh& mesh = layout.mesh;
  for (int step = 0; step < lanes.micro_steps(mesh.replica()); ++step)
    additions_.push_back(lanes.additions(mesh.replica(), step));
  final_additions_ = lanes.final_additions();
  for (int g = 0; g < mesh.replicas; ++g) sums_of_.push_back(static_cast<int>(lanes.partial_sums(g).size()));

  constexpr auto fp32 = static_cast<std::int64_t>(sizeof(float));
  for (int i = 0; i < gradient_buffers; ++i)
    gradients_.push_back(r_.symmetric.plan<std::byte>(fmt::format("gradients {}", i), memory.gradients[i]));
  accumulators_ = r_.symmetric.plan<std::byte>("gradient accumulators", memory.accumulators);
  sums_ = r_.own.plan<float>("gradient sums", memory.sums / fp32);
  lane_scratch_ = r_.own.plan<float>("lanes being added", memory.lane_scratch / fp32);
  scratch_ = r_.own.plan<float>("partial sums being added", memory.scratch / fp32);

  gradient_free_.resize(gradient_buffers);
  units_.reserve(layout.units());
  for (int unit = 0; unit < layout.units(); ++unit) units_.emplace_back(*this, unit);
  for (const StoredSlice& s : layout.slices) {
    if (s.frozen) continue;
    Unit& unit = units_[s.unit];
    unit.gradient_extents.push_back({nullptr, s.elements, s.stride, policy.reduce});
    unit.sum_extents.push_back({nullptr, s.slice.count, s.part, DType::fp32});
  }
}

void GradientSums::find_memory() {
  if (accumulators_at_ != nullptr) return;
  accumulators_at_ = reinterpret_cast<float*>(r_.symmetric.at(accumulators_));
  if (splits()) sums_at_ = r_.own.at(sums_);
  lane_scratch_at_ = r_.own.at(lane_scratch_);
  scratch_at_ = r_.own.at(scratch_);
}

float* GradientSums::sums() {
  find_memory();
  return splits() ? sums_at_ : accumulators_at_;
}

void GradientSums::begin_micro_step(int micro_step, bool apart) {
  micro_step_ = micro_step;
  const bool own_lane = layout_.mesh.group == 1 && policy_.reduce == DType::fp32;
  direct_ = own_lane && !apart ? &additions_[as_size(micro_step)].front() : nullptr;
}

float* GradientSums::gradient(int stored) {
  const StoredSlice& s = layout_.slices[stored];
  if (s.frozen) return nullptr;
  if (lies_in_sum(s, direct_)) {
    find_memory();
    r_.stream.wait(units_[s.unit].reduced);
    return accumulators_at_ + direct_->accumulator * layout_.slice_elements + s.offset;
  }
  r_.stream.wait(gradient_free_[gradient_buffer_of(s.unit, layout_.layers)]);
  return gradient_at(s);
}

void GradientSums::reduce(int number) {
  find_memory();
  Unit& unit = units_[number];
  if (unit.gradient_extents.empty()) return;
  bool all_added = direct_ != nullptr && additions_[as_size(micro_step_)].size() == 1;
  for (std::size_t i = 0; i < unit.gradient_extents.size(); ++i) {
    const StoredSlice& s = slice(number, static_cast<int>(i));
    all_added = all_added && lies_in_sum(s, direct_);
    if (policy_.reduce != DType::fp32)
      r_.kernels.convert(r_.stream, gradient_at(s), policy_.reduce, gradient_at(s), DType::fp32, s.elements);
    unit.gradient_extents[i].data = gradient_at(s);
  }
  unit.micro_batches.additions = &additions_[as_size(micro_step_)];
  unit.micro_batches.direct = direct_;
  const tensor::Event written = r_.stream.record();
  unit.reduced = all_added ? written
                           : r_.groups.reductions->ordered_reduce_scatter(unit.gradient_extents,
                                                                          unit.micro_batches, written);
  gradient_free_[gradient_buffer_of(number, layout_.layers)] = unit.reduced;
  const bool last = as_size(micro_step_) + 1 == additions_.size();
  if (last && final_additions_.size() > 1) exchange(unit, number);  // else its one node is the sum
}

void GradientSums::exchange(Unit& unit, int number) {
  for (std::size_t i = 0; i < unit.sum_extents.size(); ++i)
    unit.sum_extents[i].data = accumulators_at_ + slice(number, static_cast<int>(i)).offset;
  unit.exchanged = r_.groups.replicas->exchange_partial_sums(unit.sum_extents, layout_.slice_elements,
                                                             sums_of_, unit.partial_sums, unit.reduced);
  // Under HFSDP a rank needs no more than its part; else every replica updates all that it holds.
  if (!splits()) unit.gathered = r_.groups.replicas->all_gather(unit.sum_extents, unit.exchanged);
}

void GradientSums::finish() {
  // In this order: behind an operation that failed the next one never starts.
  for (const Unit& unit : units_)
    for (const tensor::Event& event : {unit.reduced, unit.exchanged, unit.gathered}) r_.stream.wait(event);
}

void GradientSums::MicroBatchReducer::reduce(tensor::Stream& stream, int tensor, std::int64_t first,
                                             std::int64_t count, std::span<const void* const> sources) {
  const StoredSlice& slice = all_.slice(unit_, tensor);
  const std::span<const LaneOp> all = *additions, left = all.subspan(lies_in_sum(slice, direct) ? 1 : 0);
  if (left.empty()) return;
  float* sum = all_.accumulators_at_ + slice.offset + first;
  const DType type = all_.policy_.reduce;
  Accumulators accumulators{
      sum, sum, all_.layout_.slice_elements, all_.kept_, all_.lane_scratch_at_, all_.added_at_once_};
  if (all_.added_at_once_ == 0) return all_.add_up(stream, left, accumulators, count, sources, type);
  // What is added in temporaries is added piece by piece, so that they are few and stay in the cache.
  for (std::int64_t done = 0; done < count; done += all_.added_at_once_) {
    for (std::size_t i = 0; i < sources.size(); ++i)
      all_.lane_sources_[i] = static_cast<const std::byte*>(sources[i]) + done * tensor::bytes_of(type);
    accumulators.first = accumulators.rest = sum + done;
    all_.add_up(stream, left, accumulators, std::min(all_.added_at_once_, count - done), all_.lane_sources_,
                type);
  }
}

void GradientSums::PartialSumReducer::reduce(tensor::Stream& stream, int tensor, std::int64_t first,
                                             std::int64_t count, std::span<const void* const> sources) {
  const StoredSlice& s = all_.slice(unit_, tensor);
  float* scratch = all_.scratch_at_;
  constexpr std::int64_t stride = comm::Communicator::largest_reduction;
  if (all_.splits()) {
    float* sum = all_.sums_at_ + s.optimizer_offset + first;
    all_.add_up(stream, all_.final_additions_, {sum, scratch, stride}, count, sources, DType::fp32);
    return;
  }
  // The sum takes the place of my part of my first partial sum, which is one of the sources and read by
  // nobody else.
  all_.add_up(stream, all_.final_additions_, {scratch, scratch, stride}, count, sources, DType::fp32);
  stream.copy(all_.accumulators_at_ + s.offset + (s.owned.first - s.slice.first) + first, scratch,
              count * static_cast<std::int64_t>(sizeof(float)));
}

void GradientSums::add_up(tensor::Stream& stream, std::span<const LaneOp> additions,
                          const Accumulators& accumulators, std::int64_t count,
                          std::span<const void* const> sources, DType type) {
  for (std::size_t i = 0; i < additions.size();) {
    const LaneOp& op = additions[i];
    if (op.kind == LaneOp::Kind::merge) {
      const void* right = accumulators.at(op.accumulator + 1);
      r_.reduce_kernels.reduce(stream, accumulators.at(op.accumulator), {&right, 1}, DType::fp32, count,
                               false);
      ++i;
      continue;
    }
    std::size_t end = i + 1;  // further micro-batches of the same lane go in the same pass
    while (end < additions.size() && additions[end].kind == LaneOp::Kind::add &&
           additions[end].accumulator == op.accumulator)
      ++end;
    r_.reduce_kernels.reduce(stream, accumulators.at(op.accumulator), sources.subspan(op.source, end - i),
                             type, count, op.kind == LaneOp::Kind::copy);
    i = end;
  }
}

}  // namespace holdfast::shard
