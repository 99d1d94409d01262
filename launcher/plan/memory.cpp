#include "launcher/plan/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "launcher/plan/units.hpp"
#include "src/base/error.hpp"
#include "src/base/slice.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::int64_t fp32 = 4;
constexpr std::int64_t gpu_reserve =
    1'500'000'000;  // CUDA context and library workspaces, upper end of what is reported

/// Gradient sums of a rank whose replica owns `lanes` lanes: the running one and one for each level of the
/// tree.
int accumulators_for(int lanes) { return 1 + std::bit_width(static_cast<unsigned>(lanes - 1)); }

StateBytes state_of(const std::vector<config::StoredTensor>& tensors, int group, int place,
                    int accumulators) {
  std::int64_t elements = 0;
  for (const auto& t : tensors) elements += slice_of(t.elements(), group, place).count;
  return {elements * fp32, 2 * elements * fp32, accumulators * elements * fp32};
}

/// Two slots, each as large as the largest unit, for its parameters and for its gradients.
std::int64_t gathered_bytes(const std::vector<config::StoredTensor>& tensors, int group) {
  std::int64_t largest = 0, unit_elements = 0;
  int unit = -1;
  for (const auto& t : tensors) {
    if (t.unit != unit) unit = t.unit, unit_elements = 0;
    unit_elements += slice_stride(t.elements(), group) * group;
    largest = std::max(largest, unit_elements);
  }
  return (group == 1 ? 2 : 4) * largest * fp32;  // unsharded parameters are their own gathered copy
}

/// Per token and layer 12 d + 4 d_kv + 6 f values of two bytes are kept without recomputation; here they are
/// fp32. Logits and their gradient come on top.
std::int64_t activation_bytes(const config::Train& train, const config::ModelShape& m) {
  const std::int64_t tokens = std::int64_t{train.micro_batch} * train.sequence;
  const std::int64_t d = m.width, kv = std::int64_t{m.kv_heads} * m.head_size(), f = m.ffn;
  return tokens * m.layers * (12 * d + 4 * kv + 6 * f) * (fp32 / 2) + 2 * tokens * m.vocabulary * fp32;
}

void check_fit(const Memory& memory, int group, const config::ClusterFacts& facts) {
  const auto& s = memory.state.front();
  const std::int64_t exact = memory.needed() - memory.activations;
  if (memory.capacity == 0 || exact <= memory.capacity) return;
  struct Part {
    const char* name;
    std::int64_t bytes;
  };
  const Part parts[] = {{"optimizer state", s.optimizer},
                        {"parameters", s.parameters},
                        {"gradient accumulators", s.accumulators},
                        {"gathered units", memory.gathered}};
  const auto& largest = *std::max_element(std::begin(parts), std::end(parts),
                                          [](const Part& a, const Part& b) { return a.bytes < b.bytes; });
  throw Error(Exit::impossible,
              fmt::format("a rank needs {} before activations but {} has {}", bytes_text(exact),
                          facts.gpu == "none" ? "its share of a node" : "a GPU", bytes_text(memory.capacity)),
              fmt::format("sharded over {}: parameters {}, optimizer state {}, gradient accumulators {}, "
                          "gathered units {}; the largest are the {}",
                          group, bytes_text(s.parameters), bytes_text(s.optimizer),
                          bytes_text(s.accumulators), bytes_text(memory.gathered), largest.name),
              "Shard over more ranks (full_shard, or a larger shard.group)?");
}

}  // namespace

Memory memory_of(const config::RunConfig& config, const config::ModelShape& model,
                 const config::ClusterFacts& facts, int group, int replicas) {
  const auto tensors = config::stored_tensors_of(model);
  const int lanes_of_replica = (config.train.lanes + replicas - 1) / replicas;
  Memory out;
  for (int place = 0; place < group; ++place)
    out.state.push_back(state_of(tensors, group, place, accumulators_for(lanes_of_replica)));
  out.gathered = gathered_bytes(tensors, group);
  out.activations = activation_bytes(config.train, model);
  out.reserved = facts.gpu == "none" ? 0 : gpu_reserve;
  out.capacity = facts.gpu_memory_bytes;
  check_fit(out, group, facts);
  return out;
}

}  // namespace holdfast::launcher
