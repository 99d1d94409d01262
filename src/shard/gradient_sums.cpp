#include "src/shard/gradient_sums.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::shard {

GradientSums::GradientSums(const Layout& layout, const LanePlan& lanes, const Policy& policy,
                           const MemoryPlan& memory, const Resources& resources)
    : layout_(layout), policy_(policy), r_(resources) {
  const Mesh& mesh = layout.mesh;
  for (int step = 0; step < lanes.micro_steps(mesh.replica()); ++step)
    additions_.push_back(lanes.additions(mesh.replica(), step));
  final_additions_ = lanes.final_additions();
  for (int g = 0; g < mesh.replicas; ++g) sums_of_.push_back(static_cast<int>(lanes.partial_sums(g).size()));
  const auto stack = [](Stack& s, int in_place, int temporaries, std::int64_t at_once, std::size_t terms) {
    s.sums.resize(as_size(in_place + temporaries));
    s.in_place = in_place;
    s.at_once = temporaries > 0 ? at_once : 0;
    s.terms.resize(terms);
  };
  stack(lanes_, lanes.accumulators(), lanes.temporaries(), memory.added_at_once, as_size(mesh.group));
  stack(partial_sums_, 0, lanes.final_temporaries(), comm::Communicator::largest_reduction,
        final_additions_.terms.size());

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
    if (splits()) unit.sum_extents.push_back({nullptr, s.slice.count, s.part, DType::fp32});
  }
  for (int unit = 0; unit < layout.units() && !splits(); ++unit) {
    const std::int64_t n = layout.unit_slices[unit].count;
    units_[unit].sum_extents = {{nullptr, n, slice_stride(n, mesh.replicas), DType::fp32}};
  }
}

void GradientSums::find_memory() {
  if (accumulators_at_ != nullptr) return;
  accumulators_at_ = reinterpret_cast<float*>(r_.symmetric.at(accumulators_));
  if (splits()) sums_at_ = r_.own.at(sums_);
  const auto temporaries = [&](Stack& stack, const auto& piece) {
    if (stack.at_once == 0) return;
    for (std::size_t k = as_size(stack.in_place); k < stack.sums.size(); ++k)
      stack.sums[k] =
          r_.own.at(piece) + static_cast<std::int64_t>(k - as_size(stack.in_place)) * stack.at_once;
  };
  temporaries(lanes_, lane_scratch_), temporaries(partial_sums_, scratch_);
}

float* GradientSums::sums() {
  find_memory();
  return splits() ? sums_at_ : accumulators_at_;
}

void GradientSums::begin_micro_step(int micro_step, bool apart) {
  micro_step_ = micro_step;
  const bool own_lane = layout_.mesh.group == 1 && policy_.reduce == DType::fp32;
  direct_ = own_lane && !apart ? &additions_[as_size(micro_step)] : nullptr;
}

float* GradientSums::gradient(int stored) {
  const StoredSlice& s = layout_.slices[stored];
  if (s.frozen) return nullptr;
  if (lies_in_sum(s, direct_)) {
    find_memory();
    r_.stream.wait(units_[s.unit].reduced);
    return accumulators_at_ + first_accumulator(*direct_) * layout_.slice_elements + s.offset;
  }
  r_.stream.wait(gradient_free_[gradient_buffer_of(s.unit, layout_.layers)]);
  return gradient_at(s);
}

void GradientSums::reduce(int number) {
  find_memory();
  Unit& unit = units_[number];
  if (unit.gradient_extents.empty()) return;
  bool all_added = direct_ != nullptr && direct_->terms.front().merges == 0;
  for (std::size_t i = 0; i < unit.gradient_extents.size(); ++i) {
    const StoredSlice& s = slice(number, static_cast<int>(i));
    all_added = all_added && lies_in_sum(s, direct_);
    if (policy_.reduce != gradient_type(layout_.unit_trained[number][i]))
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
  if (last && final_additions_.terms.size() > 1) exchange(unit, number);  // else its one node is the sum
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
  Stack& stack = all_.lanes_;
  for (int k = 0; k < stack.in_place; ++k)
    stack.sums[as_size(k)] = all_.accumulators_at_ + k * all_.layout_.slice_elements + slice.offset + first;
  if (!lies_in_sum(slice, direct))
    return all_.add_up(stream, stack, additions->before, additions->terms, sources, all_.policy_.reduce,
                       count);
  // Only the merges remain: the sum that the model has added to goes down the stack.
  const int top = first_accumulator(*direct), merges = direct->terms.front().merges;
  if (merges == 0) return;
  const Addition merge{false, merges - 1};
  const void* const merged = stack.sums[as_size(top)];
  all_.add_up(stream, stack, top, {&merge, 1}, {&merged, 1}, DType::fp32, count);
}

void GradientSums::PartialSumReducer::reduce(tensor::Stream& stream, int tensor, std::int64_t first,
                                             std::int64_t count, std::span<const void* const> sources) {
  // Else the sum takes the place of my part of my first partial sum, which is one of the sources and read by
  // nobody else.
  const Mesh& mesh = all_.layout_.mesh;
  const Slice unit = all_.layout_.unit_slices[unit_];
  float* const sum = first + (all_.splits() ? all_.sums_at_ + all_.slice(unit_, tensor).optimizer_offset
                                            : all_.accumulators_at_ + unit.first +
                                                  slice_of(unit.count, mesh.replicas, mesh.replica()).first);
  all_.add_up(stream, all_.partial_sums_, 0, all_.final_additions_.terms, sources, DType::fp32, count, sum);
}

void GradientSums::add_up(tensor::Stream& stream, Stack& stack, int before,
                          std::span<const Addition> additions, std::span<const void* const> terms, DType type,
                          std::int64_t count, float* result) {
  kernels::OrderedSum call{terms, type, additions, stack.sums, before, count, result};
  if (stack.at_once == 0) return r_.reduce_kernels.add_up(stream, call);
  call.terms = std::span(stack.terms).first(terms.size());
  for (std::int64_t done = 0; done < count; done += stack.at_once) {
    call.count = std::min(stack.at_once, count - done);
    for (std::size_t i = 0; i < terms.size(); ++i)
      stack.terms[i] = static_cast<const std::byte*>(terms[i]) + done * tensor::bytes_of(type);
    r_.reduce_kernels.add_up(stream, call);
    for (int k = 0; k < stack.in_place; ++k) stack.sums[as_size(k)] += stack.at_once;
    if (result != nullptr) call.result += stack.at_once;
  }
}

}  // namespace holdfast::shard
