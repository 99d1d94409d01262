#include "launcher/diagnose/nvlink_fault.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace holdfast::launcher {
namespace {

using enum XidAction;

constexpr std::uint32_t bits(std::initializer_list<int> numbers) {
  std::uint32_t mask = 0;
  for (const int n : numbers) mask |= std::uint32_t{1} << n;
  return mask;
}

constexpr int never = 1'000'000;
constexpr bool secondary = true;

/// Bits of a register, and what follows from them: `first`, and once they have come `times` times, `then`.
struct NvlinkRow {
  int reg;  ///< from 0: NVIDIA counts from 1
  std::uint32_t mask;
  XidAction first;
  int times;
  XidAction then;
  const char* nvidia;
  const char* meaning;
  bool is_secondary = false;  ///< of other Xids beside it: these decide
};

// Source: WORKFLOW_NVLINK_ERR of NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors), as NVSentinel's
// design of this workflow quotes it. It holds for Hopper, where the first, third, fourth and fifth register
// are valid. A link that NVIDIA wants to have inspected, or a fabric that has to be reset, takes the node out
// of the job; a bug that is to be reported does not.
constexpr const char* no_action = "IGNORE";
constexpr const char* report = "CONTACT_SUPPORT (report a bug)";
constexpr const char* parity = "CONTACT_SUPPORT when seen more than 2 times on the link";
constexpr const char* mechanics = "CHECK_MECHANICALS (re-seat the link, run diagnostics)";
constexpr const char* diagnose_again = "run field diagnostics when seen repeatedly";
constexpr const char* report_again = "CONTACT_SUPPORT when seen repeatedly";
constexpr std::array nvlink_rows{
    NvlinkRow{0, bits({0, 23, 30}), ignore, never, ignore, no_action, "no error"},
    NvlinkRow{0, bits({1, 20}), restart, never, restart, report, "a secondary error", secondary},
    NvlinkRow{0, bits({4, 5}), restart, 3, substitute, parity, "an ECC or parity error of the link"},
    NvlinkRow{0, bits({8, 9, 12, 16, 17, 24, 28}), substitute, never, substitute, mechanics,
              "possibly a hardware error of the link"},
    NvlinkRow{0, bits({21, 22}), substitute, never, substitute, mechanics, "marginal signal of the link",
              secondary},
    NvlinkRow{0, bits({27, 29}), restart, never, restart, report_again, "an error of the link"},
    NvlinkRow{2, bits({0, 1, 2, 6}), restart, 3, substitute, parity, "an ECC or parity error of the link"},
    NvlinkRow{2, bits({13}), restart, never, restart, report, "an error that is not expected in production"},
    NvlinkRow{2, bits({16, 19}), restart, 2, substitute, diagnose_again, "an error of the link"},
    NvlinkRow{2, bits({17, 18}), restart, never, restart, report_again, "an error of the link"},
    NvlinkRow{3, bits({16, 17}), restart, never, restart, report, "a secondary error", secondary},
    NvlinkRow{3, bits({18}), substitute, never, substitute, "reset of the fabric",
              "the fabric needs a reset"},
    NvlinkRow{4, bits({18, 19, 21, 22, 24, 25, 27, 28}), restart, 3, substitute, parity,
              "an ECC or parity error of the link"},
    NvlinkRow{4, bits({20, 23, 26, 29}), ignore, never, ignore, "IGNORE (continue operation)",
              "many corrected errors of the link"},
};

std::uint32_t known_bits(int reg) {
  std::uint32_t mask = 0;
  for (const NvlinkRow& row : nvlink_rows)
    if (row.reg == reg) mask |= row.mask;
  return mask;
}

}  // namespace

std::optional<NvlinkFault> nvlink_fault_in(const std::string& text) {
  const auto at = text.find("on link ");
  if (at == std::string::npos) return std::nullopt;
  const char* here = text.data() + at + std::string_view("on link ").size();
  const char* const end = text.data() + text.size();
  NvlinkFault fault;
  const auto number = [&](auto& into, int base) {
    const auto [after, error] = std::from_chars(here, end, into, base);
    here = after;
    return error == std::errc();
  };
  const auto skip = [&](std::string_view word) {
    const bool there = std::string_view(here, end).starts_with(word);
    if (there) here += word.size();
    return there;
  };
  if (!number(fault.link, 10)) return std::nullopt;
  while (skip(" ")) {
  }
  for (std::size_t n = 0; n < fault.registers.size(); ++n) {
    if (!skip(n == 0 ? "(" : ",")) return std::nullopt;
    while (skip(" ")) {
    }
    if (!skip("0x") || !number(fault.registers[n], 16)) return std::nullopt;
  }
  return skip(")") ? std::optional(fault) : std::nullopt;
}

NvlinkVerdict verdict_of(const NvlinkFault& fault, int seen, bool others) {
  std::optional<NvlinkVerdict> worst;
  const auto take = [&](const NvlinkVerdict& verdict) {
    if (!worst || verdict.action > worst->action) worst = verdict;
  };
  for (const NvlinkRow& row : nvlink_rows) {
    if ((fault.registers[row.reg] & row.mask) == 0) continue;
    XidAction action = seen >= row.times ? row.then : row.first;
    if (row.is_secondary && others) action = ignore;
    take({action, row.nvidia, row.meaning});
  }
  for (const int reg : {0, 2, 3, 4})
    if (fault.registers[reg] & ~known_bits(reg))
      take({restart, report, "bits that NVIDIA's workflow does not have"});
  return worst.value_or(NvlinkVerdict{restart, report, "no bit is set"});
}

bool same_fault(const NvlinkFault& a, const NvlinkFault& b) {
  return a.link == b.link && std::any_of(nvlink_rows.begin(), nvlink_rows.end(), [&](const NvlinkRow& row) {
           return (a.registers[row.reg] & row.mask) != 0 && (b.registers[row.reg] & row.mask) != 0;
         });
}

}  // namespace holdfast::launcher
