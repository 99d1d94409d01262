#include "launcher/diagnose/xid.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

using enum XidAction;

constexpr const char* reset = "reset the GPU (nvidia-smi --gpu-reset) when no process uses it";
constexpr const char* inspect = "drain the node and have its hardware inspected";
constexpr const char* if_again = "if it comes again, drain the node and run dcgmi diag -r 3";
constexpr const char* of_code =
    "look for the error in the program; if several programs show it, run dcgmi diag -r 3";
constexpr const char* support = "report it to NVIDIA's support if it comes again";
constexpr const char* no_advice = "";
constexpr bool by_program = true;

// The row with the number itself wins over a range that holds it: ranges come last.
constexpr std::array rows{
    XidRow{8, 8, restart, "RESTART_APP", "the GPU has stopped processing", if_again},
    XidRow{11, 11, restart, "RESTART_APP", "invalid or corrupted push buffer stream", of_code, by_program},
    XidRow{13, 13, restart, "RESTART_APP", "graphics engine exception", of_code, by_program},
    XidRow{14, 14, ignore, "IGNORE", "driver note", no_advice},
    XidRow{25, 25, restart, "RESTART_APP", "illegal push buffer stream", of_code, by_program},
    XidRow{31, 31, restart, "RESTART_APP", "GPU memory page fault", of_code, by_program},
    XidRow{32, 32, restart, "RESTART_APP", "invalid or corrupted push buffer stream", of_code, by_program},
    XidRow{37, 38, ignore, "IGNORE", "driver firmware note", no_advice},
    XidRow{39, 41, restart, "RESTART_APP", "copy engine exception", if_again},
    XidRow{43, 43, ignore, "IGNORE", "the GPU stopped processing of one program", no_advice},
    XidRow{44, 44, ignore, "IGNORE", "graphics engine fault during a context switch", no_advice},
    // It follows other Xids, and the end of a program by a signal.
    XidRow{45, 45, ignore, "WORKFLOW_XID_45",
           "preemptive cleanup after another error, or of a program that ended",
           "if no other Xid is beside it, and no program was ended: restart the fabric manager"},
    XidRow{46, 46, substitute, "RESET_GPU", "the GPU has stopped processing (timeout)", reset},
    XidRow{48, 48, substitute, "WORKFLOW_XID_48", "double-bit ECC error", reset},
    XidRow{54, 54, substitute, "CHECK_MECHANICALS", "auxiliary power is not connected", inspect},
    XidRow{60, 60, restart, "RESTART_APP", "security engine exception", if_again},
    XidRow{61, 61, watch, "CONTACT_SUPPORT", "internal micro-controller breakpoint", support},
    XidRow{62, 62, substitute, "RESET_GPU", "internal micro-controller halt", reset},
    XidRow{63, 63, ignore, "IGNORE", "a memory row was remapped",
           "reset the GPU after the job: a row remap is pending"},
    XidRow{64, 64, substitute, "RESET_GPU", "a memory row could not be remapped",
           "drain the node, reset the GPU; a candidate for return to the manufacturer"},
    XidRow{66, 67, ignore, "IGNORE", "driver firmware note", no_advice},
    XidRow{68, 68, restart, "RESTART_APP", "video processor exception", if_again},
    XidRow{69, 69, restart, "RESTART_APP", "graphics engine class error", of_code, by_program},
    XidRow{70, 72, restart, "RESTART_APP", "copy engine exception", if_again},
    // By its registers, where its text has them; without them nothing says that the node cannot be used.
    XidRow{
        74, 74, restart, "WORKFLOW_NVLINK_ERR", "NVLink error",
        "look for an SXid beside it (NVSwitch); if it comes again, reset all GPUs of the node and inspect"},
    XidRow{75, 77, restart, "RESTART_APP", "copy engine exception", if_again},
    XidRow{78, 78, watch, "UPDATE_SWFW", "a virtual GPU could not start", support},
    XidRow{79, 79, substitute, "RESTART_BM", "the GPU has fallen off the bus",
           "reboot the node; if it comes again, have the GPU replaced"},
    XidRow{80, 80, restart, "RESTART_APP", "corrupted data sent to the GPU", of_code, by_program},
    XidRow{92, 92, watch, "IGNORE", "high rate of single-bit ECC errors",
           "watch this GPU; use the node as a spare"},
    XidRow{93, 93, ignore, "IGNORE", "driver firmware note", no_advice},
    XidRow{94, 94, restart, "RESTART_APP", "contained uncorrectable ECC error",
           "reset the GPU after the job"},
    XidRow{95, 95, substitute, "RESET_GPU", "uncontained uncorrectable ECC error", reset},
    XidRow{106, 107, ignore, "IGNORE", "test message of the management bus", no_advice},
    XidRow{108, 108, ignore, "IGNORE", "NVLink remote translation error", no_advice},
    XidRow{109, 109, substitute, "RESET_GPU", "context switch timeout", reset},
    XidRow{110, 110, substitute, "RESET_GPU", "security fault", reset},
    XidRow{119, 119, substitute, "RESET_GPU", "timeout of the GPU's system processor", reset},
    XidRow{120, 120, substitute, "RESET_GPU", "error of the GPU's system processor", reset},
    XidRow{121, 121, ignore, "IGNORE", "chip-to-chip link note", no_advice},
    XidRow{122, 124, watch, "CONTACT_SUPPORT", "an access to the board's flash memory failed", support},
    XidRow{125, 125, watch, "CONTACT_SUPPORT", "error of the board's InfoROM", support},
    XidRow{136, 136, substitute, "RESET_GPU", "link training failed", reset},
    XidRow{137, 137, ignore, "IGNORE", "NVLink privilege note", no_advice},
    XidRow{140, 140, substitute, "RESET_GPU", "unrecovered ECC error", reset},
    XidRow{141, 141, ignore, "IGNORE", "CUDA fast path note", no_advice},
    XidRow{143, 143, substitute, "RESET_GPU", "GPU initialization error", reset},
    XidRow{151, 151, substitute, "RESTART_VM", "key rotation error of confidential computing",
           "restart the virtual machine; without one, reboot the node"},
    XidRow{154, 154, ignore, "XID_154", "the driver's recovery action changed", no_advice},
    XidRow{155, 155, substitute, "RESET_GPU", "NVLink error at software initialization", reset},
    XidRow{156, 156, substitute, "RESET_GPU", "resource retirement", reset},
    XidRow{157, 157, ignore, "IGNORE", "a resource could not be retired", support},
    XidRow{158, 158, substitute, "RESET_GPU", "fatal timeout of the GPU", reset},
    // Details of an Xid 48, which has the action.
    XidRow{171, 172, watch, "none", "uncorrectable memory error, beside a double-bit ECC error", reset},
    XidRow{82, 86, restart, "RESTART_APP", "video, image or copy engine exception", if_again},
    XidRow{88, 89, restart, "RESTART_APP", "video engine exception", if_again},
    XidRow{96, 105, restart, "RESTART_APP", "video or image engine exception", if_again},
    // Not expected on this generation.
    XidRow{126, 135, restart, "RESTART_APP", "copy engine exception", if_again},
    XidRow{139, 139, restart, "RESTART_APP", "optical flow engine exception", if_again},
    XidRow{142, 142, watch, "CONTACT_SUPPORT", "video encoder error", support},
    XidRow{144, 150, watch, "WORKFLOW_NVLINK5_ERR", "NVLink error of a newer GPU", if_again},
    XidRow{152, 153, ignore, "IGNORE", "error of an accelerator that this GPU does not have", no_advice},
    XidRow{159, 159, watch, "CHECK_UVM", "chip-to-chip link error", if_again},
    XidRow{160, 161, ignore, "IGNORE", "channel retirement", no_advice},
    XidRow{162, 170, watch, "none", "a number without an action of NVIDIA's", support},
};

/// The numbers of NVML and of the driver are the same.
std::optional<XidAction> of_number(long action) {
  switch (action) {
    case 0:
      return ignore;
    case 3:  // the peer traffic must end: the end of the ranks is enough
      return restart;
    case 1:
    case 2:
    case 4:
    case 5:
    case 6:
    case 7:
      return substitute;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::span<const XidRow> xid_table() { return rows; }

const XidRow* row_of_xid(int number) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const XidRow& r) { return r.first <= number && number <= r.last; });
  return row == rows.end() ? nullptr : &*row;
}

XidAction action_of_xid(int number) {
  const XidRow* row = row_of_xid(number);
  return row ? row->action : restart;
}

std::optional<XidAction> action_named_in(const std::string& text) {
  const std::string said = lower(text);
  const auto changed = said.find("recovery action changed");
  if (changed == std::string::npos) return std::nullopt;
  // "... from 0x0 (None) to 0x1 (GPU Reset Required)": the number is the same in all drivers, the words are
  // not.
  const auto to = said.find(" to 0x", changed);
  if (to != std::string::npos) return of_number(std::strtol(said.c_str() + to + 4, nullptr, 16));
  const auto after = said.find(" to ", changed);
  const std::string_view named = std::string_view(said).substr(after == std::string::npos ? changed : after);
  for (const char* word : {"drain and reset", "reset", "reboot"})
    if (named.find(word) != std::string_view::npos) return substitute;
  if (named.find("drain p2p") != std::string_view::npos) return restart;
  if (named.find("none") != std::string_view::npos) return ignore;
  return std::nullopt;
}

std::optional<XidAction> action_of_recovery(long nvml_action) { return of_number(nvml_action); }

}  // namespace holdfast::launcher
