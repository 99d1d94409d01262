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
constexpr const char* reboot = "reboot the node";
constexpr const char* inspect = "drain the node and have its hardware inspected";
constexpr const char* if_again = "if it comes again, drain the node and run dcgmi diag -r 3";
constexpr const char* no_advice = "";

// The row with the number itself wins over a range that holds it: ranges come last.
constexpr std::array rows{
    XidRow{8, 8, restart, "the GPU has stopped processing", if_again},
    XidRow{13, 13, restart, "graphics engine exception", if_again},
    XidRow{31, 31, restart, "GPU memory page fault", if_again},
    XidRow{32, 32, restart, "invalid or corrupted push buffer stream", if_again},
    XidRow{37, 38, ignore, "driver firmware note", no_advice},
    XidRow{39, 41, restart, "copy engine exception", if_again},
    XidRow{43, 43, ignore, "the GPU stopped processing of one program", no_advice},
    XidRow{44, 44, ignore, "graphics engine fault during a context switch", no_advice},
    XidRow{45, 45, ignore, "preemptive cleanup after another error", no_advice},
    XidRow{46, 46, substitute, "the GPU has stopped processing (timeout)", reset},
    XidRow{48, 48, substitute, "double-bit ECC error", reset},
    XidRow{54, 54, substitute, "auxiliary power is not connected", inspect},
    XidRow{62, 62, substitute, "internal micro-controller halt", reset},
    XidRow{63, 63, ignore, "a memory row was remapped",
           "reset the GPU after the job: a row remap is pending"},
    XidRow{64, 64, substitute, "a memory row could not be remapped",
           "drain the node, reset the GPU; a candidate for return to the manufacturer"},
    XidRow{66, 67, ignore, "driver firmware note", no_advice},
    XidRow{68, 68, restart, "video processor exception", if_again},
    XidRow{69, 69, restart, "graphics engine class error", if_again},
    XidRow{71, 71, restart, "copy engine exception", if_again},
    XidRow{74, 74, substitute, "NVLink error",
           "look for an SXid beside it (NVSwitch), reset all GPUs of the node; if it comes again, inspect"},
    XidRow{79, 79, substitute, "the GPU has fallen off the bus",
           "reboot the node; if it comes again, have the GPU replaced"},
    XidRow{80, 80, restart, "corrupted data sent to the GPU", if_again},
    XidRow{92, 92, watch, "high rate of single-bit ECC errors", "watch this GPU; use the node as a spare"},
    XidRow{93, 93, ignore, "driver firmware note", no_advice},
    XidRow{94, 94, restart, "contained uncorrectable ECC error", "reset the GPU after the job"},
    XidRow{95, 95, substitute, "uncontained uncorrectable ECC error", reset},
    XidRow{109, 109, substitute, "context switch timeout", reset},
    XidRow{110, 110, substitute, "security fault", reset},
    XidRow{119, 119, substitute, "timeout of the GPU's system processor", reset},
    XidRow{120, 120, substitute, "error of the GPU's system processor", reset},
    XidRow{121, 121, ignore, "chip-to-chip link note", no_advice},
    XidRow{126, 126, restart, "copy engine exception", if_again},
    XidRow{134, 134, restart, "video decoder exception", if_again},
    XidRow{136, 136, substitute, "link training failed", reset},
    XidRow{137, 137, ignore, "NVLink privilege note", no_advice},
    XidRow{140, 140, substitute, "unrecovered ECC error", reset},
    XidRow{141, 141, ignore, "NVLink privilege note", no_advice},
    XidRow{143, 143, substitute, "GPU initialization error", reset},
    XidRow{154, 154, ignore, "the driver's recovery action changed", no_advice},
    XidRow{155, 155, substitute, "NVLink error at software initialization", reset},
    XidRow{156, 156, substitute, "resource retirement", reset},
    XidRow{158, 158, substitute, "fatal timeout of the GPU", reset},
    XidRow{171, 172, substitute, "uncorrectable memory error, beside a double-bit ECC error", reset},
    // Not expected on this generation.
    XidRow{144, 151, watch, "NVLink or virtualization error of a newer GPU", if_again},
    XidRow{159, 159, watch, "chip-to-chip link error", if_again},
    XidRow{162, 165, watch, "power smoothing note", no_advice},
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

const XidRow* row_of_xid(int number) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const XidRow& r) { return r.first <= number && number <= r.last; });
  return row == rows.end() ? nullptr : &*row;
}

XidAction action_of_xid(int number, bool seen_before) {
  const XidRow* row = row_of_xid(number);
  if (!row) return seen_before ? substitute : restart;
  // An Xid that programs cause, too, is blamed on the GPU when it recurs on the same one. A contained error
  // is not: the GPU is usable, and a reset can wait.
  constexpr int contained = 94;
  return row->action == restart && seen_before && number != contained ? substitute : row->action;
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
