#pragma once
// What logical rank 0 orders for the end of a step, beside the numbers of the optimizer: broadcast as bits.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>

namespace holdfast::train {

struct StepOrders {
  bool save = false;              ///< to the shared level
  bool must = false;              ///< the save is not skipped, however busy the writers are
  bool stop = false;              ///< then the run ends, to be continued by another job
  bool pause = false;             ///< then the ranks hold until they are told to go on
  std::array<char, 92> reason{};  ///< of `stop`, zero-terminated

  void set_reason(std::string_view text) {
    reason.fill('\0');
    std::copy_n(text.data(), std::min(text.size(), reason.size() - 1), reason.data());
  }
  std::string reason_text() const { return reason.data(); }
};
static_assert(std::is_trivially_copyable_v<StepOrders>);

}  // namespace holdfast::train
