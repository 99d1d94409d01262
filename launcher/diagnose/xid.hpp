#pragma once
// NVIDIA's Xid errors of an H100 and the actions that they require. Source: NVIDIA's Xid catalog
// (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, October 2025, as gpud mirrors it). The
// driver's recovery action (Xid 154, or from NVML) comes before the table, and Xid 74 is judged by its
// registers (nvlink_fault.hpp).
#include <optional>
#include <span>
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
  const char* nvidia;  ///< the catalog's immediate action
  const char* meaning;
  const char* advice;  ///< for the administrator
  /// The catalog has the program checked first (CHECK_APP/CUDA, WORKFLOW_XID_13, WORKFLOW_XID_31): it causes
  /// this number more often than the GPU.
  bool of_program = false;
};
std::span<const XidRow> xid_table();
/// Nothing: the number is not in the table.
const XidRow* row_of_xid(int number);
/// That of the table. A number that is not in it restarts the ranks, however often it comes.
XidAction action_of_xid(int number);
/// The action that Xid 154's text names, for example "GPU Reset Required"; nothing: no such text.
std::optional<XidAction> action_named_in(const std::string& text);
/// NVML's recovery action (nvmlDeviceGpuRecoveryAction_t); nothing for a number that this version does not
/// know.
std::optional<XidAction> action_of_recovery(long nvml_action);

}  // namespace holdfast::launcher
