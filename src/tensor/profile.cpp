#include "src/tensor/profile.hpp"

#include "src/base/as_size.hpp"

namespace holdfast::tensor {

std::string_view name_of(Work work) {
  constexpr std::array<std::string_view, kinds_of_work> names = {
      "matmul", "attention", "pointwise", "head and loss", "optimizer", "waiting for communication", "data"};
  return names[as_size(work)];
}

void Profile::record(Work work, const char* name, Time start, Time end, double flops) {
  Totals& totals = totals_[as_size(work)];
  totals.seconds += std::chrono::duration<double>(end - start).count();
  totals.flops += flops;
  ++totals.calls;
  if (!tracing_ || name == nullptr) return;
  if (spans_.size() < spans_.capacity())
    spans_.push_back({work, name, start, end});
  else
    ++left_out_;
}

void Profile::clear() {
  totals_ = {};
  spans_.clear();
  left_out_ = 0;
}

}  // namespace holdfast::tensor
