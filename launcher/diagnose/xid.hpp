#pragma once
// NVIDIA's Xid errors of an H100 and the actions that they require. Source: NVIDIA's Xid catalog, as mirrored
// by gpud (October 2025); the driver's recovery action (Xid 154, or from NVML) comes before the table.
#include <optional>
#include <string>

namespace holdfast::launcher {

enum class XidAction {
  ignore,      ///< no action is needed
  watch,       ///< training goes on; the GPU is suspect
  restart,     ///< restart the ranks in place
  substitute,  ///< the node needs a reset or worse: another takes its slot
};
struct XidRow {
  int first, last;  ///< numbers
  XidAction action;
  const char* meaning;
  const char* advice;  ///< for the administrator
};
/// Unknown numbers: restart once, then substitute (`seen_before`: the same number on the same GPU in this
/// job).
XidAction action_of_xid(int number, bool seen_before);
const XidRow* row_of_xid(int number);
/// The action that Xid 154's text names, for example "GPU Reset Required"; nothing: no such text.
std::optional<XidAction> action_named_in(const std::string& text);
/// NVML's recovery action (nvmlDeviceGpuRecoveryAction_t); nothing for a number that this version does not
/// know.
std::optional<XidAction> action_of_recovery(long nvml_action);

}  // namespace holdfast::launcher
