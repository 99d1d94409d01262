#include "src/shard/gathered_units.hpp"

#include <fmt/core.h>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::shard {

GatheredUnits::GatheredUnits(const Layout& layout, const Policy& policy, const MemoryPlan& memory,
                             int micro_steps, const Resources& resources)
    : layout_(layout),
      policy_(policy),
      r_(resources),
      frozen_plan_(frozen_plan(layout, policy)),
      parameters_arena_(resources.parameters != nullptr ? *resources.parameters : resources.own),
      published_arena_(memory.published_is_symmetric ? resources.symmetric : resources.own) {
  if (!memory.gather_buffers.empty()) {
    const GatherBuffers buffers = gather_buffers_of(layout.layers, policy);
    step_ = schedule_of(uses_of(layout.layers, layout.tied, micro_steps), buffers, policy);
    evaluation_ = schedule_of(uses_of(layout.layers, layout.tied, 1, false), buffers, policy);
    micro_batch_ = schedule_of(uses_of(layout.layers, layout.tied, 1), buffers, policy);
  }
  for (std::size_t i = 0; i < memory.gather_buffers.size(); ++i)
    buffers_.push_back(
        {r_.symmetric.plan<std::byte>(fmt::format("gathered unit {}", i), memory.gather_buffers[i])});
  publishes_ = memory.published > 0;
  if (publishes_)
    published_ = published_arena_.plan<std::byte>("parameters in the wire type", memory.published);
  if (memory.frozen > 0) frozen_ = r_.own.plan<std::byte>("frozen parameters", memory.frozen);
  parameters_ = parameters_arena_.plan<float>("parameters",
                                              memory.parameters / static_cast<std::int64_t>(sizeof(float)));

  const auto units = as_size(layout.units());
  buffer_of_.assign(units, -1);
  published_by_.resize(units);
  gather_extents_.resize(units), publish_extents_.resize(units);
  for (const StoredSlice& s : layout.slices) {
    const auto unit = as_size(s.unit);
    gather_extents_[unit].push_back({nullptr, s.elements, s.stride, policy.parameters});
    if (!s.frozen) publish_extents_[unit].push_back({nullptr, s.slice.count, s.part, policy.parameters});
  }
}

void GatheredUnits::publish() {
  if (!publishes_) return;
  for (int unit = 0; unit < layout_.units(); ++unit) {
    auto& extents = publish_extents_[unit];
    auto& done = published_by_[unit];
    r_.stream.wait(done);  // of the step before: nobody reads the old values any more
    std::size_t i = 0;
    // Tensors that lie behind each other in both arenas are converted at once.
    std::int64_t to = 0, from = 0, count = 0;
    const auto convert = [&] {
      if (count > 0)
        r_.kernels.convert(r_.stream, published(to), policy_.parameters, parameters() + from, DType::fp32,
                           count);
    };
    for (int stored : layout_.unit_trained[unit]) {
      const StoredSlice& s = slice(stored);
      const std::int64_t place = s.offset + s.optimized.first - s.slice.first;
      if (place != to + count || s.optimizer_offset != from + count) {
        convert();
        to = place;
        from = s.optimizer_offset;
        count = 0;
      }
      count += s.optimized.count;
      extents[i++].data = published(s.offset);
    }
    convert();
    if (layout_.mesh.split_optimizer && !extents.empty())
      done = r_.groups.replicas->all_gather(extents, r_.stream.record());
  }
}

void GatheredUnits::begin(const Schedule& schedule) {
  schedule_ = &schedule;
  use_ = -1;
  next_gather_ = 0;
  for (GatherBuffer& buffer : buffers_) {
    expects(!buffer.in_use, "every unit was released");
    buffer.unit = -1;
  }
  prefetch(-1);
}

void GatheredUnits::prefetch(int use) {
  const auto& gathers = schedule_->gathers;
  for (; next_gather_ < gathers.size() && gathers[next_gather_].at == use; ++next_gather_)
    gather(gathers[next_gather_].unit, gathers[next_gather_].buffer);
}

void GatheredUnits::gather(int unit, int to) {
  GatherBuffer& buffer = buffers_[to];
  expects(!buffer.in_use, "a buffer is free when another unit takes it");
  r_.stream.wait(buffer.ready);  // also of a gather that nobody used
  std::byte* base = r_.symmetric.at(buffer.memory);
  const std::int64_t bytes = tensor::bytes_of(policy_.parameters);
  auto& extents = gather_extents_[unit];
  if (publishes_) r_.stream.wait(published_by_[unit]);
  std::size_t i = 0;
  for (int stored : stored_of(unit)) {
    const StoredSlice& s = slice(stored);
    std::byte* whole = base + s.unit_offset * bytes;
    bring_mine(whole + s.slice.first * bytes, stored);
    extents[i++].data = whole;
  }
  buffer.unit = unit;
  // The stream's order also keeps the others' parts from being overwritten while compute still reads them.
  buffer.ready = r_.groups.gathers->all_gather(extents, r_.stream.record());
}

void GatheredUnits::acquire(int unit) {
  if (!shares()) {
    r_.stream.wait(published_by_[unit]);
    return;
  }
  expects(schedule_ != nullptr && use_ + 1 < static_cast<int>(schedule_->uses.size()),
          "a step or an evaluation was begun and is not over");
  const Use& use = schedule_->uses[++use_];
  expects(use.unit == unit, "units are acquired in the order of the schedule");
  prefetch(use_);
  GatherBuffer& buffer = buffers_[use.buffer];
  expects(buffer.unit == unit, "the unit is in its buffer");
  r_.stream.wait(buffer.ready);
  buffer.in_use = true;
  buffer_of_[unit] = use.buffer;
}

void GatheredUnits::release(int unit) {
  if (shares()) buffers_[buffer_of_[unit]].in_use = false;
}

std::pair<const std::byte*, DType> GatheredUnits::mine(int stored) {
  const StoredSlice& s = slice(stored);
  if (s.frozen) return {frozen() + frozen_plan_.places[stored].values, policy_.parameters};
  if (publishes_) return {published(s.offset), policy_.parameters};
  return {reinterpret_cast<const std::byte*>(parameters() + s.optimizer_offset), DType::fp32};
}

void GatheredUnits::bring_mine(std::byte* to, int stored) {
  const StoredSlice& s = slice(stored);
  const FrozenPlace& place = frozen_plan_.places[stored];
  if (place.coded) {
    // The end of the last block is room that no element has.
    const std::int64_t whole = (s.slice.count + code_block - 1) / code_block * code_block;
    r_.kernels.decode_blocks(r_.stream, to, policy_.parameters, *policy_.base, frozen() + place.values,
                             reinterpret_cast<const float*>(frozen() + place.scales), whole);
    return;
  }
  const auto [from, type] = mine(stored);
  r_.kernels.convert(r_.stream, to, policy_.parameters, from, type, s.slice.count);
}

const void* GatheredUnits::weight(int stored) {
  const StoredSlice& s = slice(stored);
  if (!shares()) return mine(stored).first;
  const int buffer = buffer_of_[s.unit];
  expects(buffer >= 0 && buffers_[buffer].unit == s.unit, "a weight of an acquired unit");
  return r_.symmetric.at(buffers_[buffer].memory) + s.unit_offset * tensor::bytes_of(policy_.parameters);
}

}  // namespace holdfast::shard
