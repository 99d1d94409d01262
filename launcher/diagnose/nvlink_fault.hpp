#pragma once
// What the registers in the text of an Xid 74 (NVLink error) mean on a Hopper GPU. Pure.
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/diagnose/xid.hpp"

namespace holdfast::launcher {

struct NvlinkFault {
  int link = -1;
  std::array<std::uint32_t, 7> registers{};
};
/// Of "... NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"; nothing: the text
/// has no seven registers, as that of NVML has none.
std::optional<NvlinkFault> nvlink_fault_in(const std::string& text);

struct NvlinkVerdict {
  XidAction action = XidAction::restart;
  const char* nvidia = "";  ///< what NVIDIA's workflow says to do
  const char* meaning = "";
};
/// By NVIDIA's workflow WORKFLOW_NVLINK_ERR. `seen`: how often the same bits have come from this link in this
/// job, this time included. `others`: Xids or SXids of other numbers are beside it.
NvlinkVerdict verdict_of(const NvlinkFault& fault, int seen, bool others);
/// True if two faults share bits of one row of the workflow.
bool same_fault(const NvlinkFault& a, const NvlinkFault& b);

}  // namespace holdfast::launcher
