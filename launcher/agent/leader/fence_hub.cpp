#include "launcher/agent/leader/fence_hub.hpp"

#include "src/base/as_size.hpp"

namespace holdfast::launcher {

void FenceHub::begin(int attempt) {
  if (std::exchange(attempt_, attempt) != attempt) fences_.clear();
}

std::optional<FenceHub::Complete> FenceHub::take(int node, control::PmixFence said) {
  if (said.attempt != attempt_) return std::nullopt;
  fences_.erase({said.set, said.number - 2});
  Fence& fence = fences_[{said.set, said.number}];
  fence.published[node] = std::move(said.published);
  if (said.waits) fence.waiting.insert(node);
  if (fence.published.size() < as_size(said.nodes) || fence.waiting.empty()) return std::nullopt;
  Complete out{{fence.waiting.begin(), fence.waiting.end()}, {attempt_, said.set, said.number, true, ""}};
  fence.waiting.clear();
  for (const auto& [from, bytes] : fence.published) out.answer.published += bytes;
  out.answer.ok = out.answer.published.size() <= control::max_published;
  if (!out.answer.ok) out.answer.published.clear();
  return out;
}

}  // namespace holdfast::launcher
