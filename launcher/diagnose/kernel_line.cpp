#include "launcher/diagnose/kernel_line.hpp"

#include <array>
#include <charconv>
#include <string_view>

namespace holdfast::launcher {
namespace {

constexpr std::size_t longest_text = 300;

/// The first integer in `text` from `at` on.
std::optional<std::int64_t> number_at(std::string_view text, std::size_t at) {
  at = text.find_first_of("0123456789", at);
  std::int64_t number = 0;
  if (at == std::string_view::npos ||
      std::from_chars(text.data() + at, text.data() + text.size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

struct Pattern {
  const char *one, *other;  ///< both must be in the line
  const char* kind;
};
constexpr std::array patterns{
    Pattern{"[Hardware Error]", "ncorrected", "machine_check"},
    Pattern{"[Hardware Error]", "severity: fatal", "machine_check"},
    Pattern{"Memory failure:", "recovery action", "machine_check"},
    Pattern{"EDAC", " UE ", "machine_check"},
    Pattern{"Remounting filesystem", "read-only", "disk_read_only"},
    Pattern{"mlx5_core", "health compromised", "nic_failed"},
    Pattern{"mlx5_core", "fatal", "nic_failed"},
    Pattern{"mlx5_core", "Fatal", "nic_failed"},
    Pattern{"temperature above threshold", "throttled", "thermal"},
};

}  // namespace

std::optional<control::Sign> sign_of_kernel_line(const std::string& line) {
  const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
  control::Sign sign;
  sign.text = line.substr(0, longest_text);
  // "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
  if (const auto xid = line.find("NVRM: Xid ("); xid != std::string::npos) {
    const auto closed = line.find("): ", xid);
    const auto number = closed == std::string::npos ? std::nullopt : number_at(line, closed);
    if (!number) return std::nullopt;
    sign.kind = "xid";
    sign.code = *number;
    return sign;
  }
  // "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
  if (const auto sxid = line.find(": SXid ("); sxid != std::string::npos) {
    if (!has(", Fatal")) return std::nullopt;
    const auto closed = line.find("): ", sxid);
    sign.kind = "nvlink_error";
    sign.code = closed == std::string::npos ? 0 : number_at(line, closed).value_or(0);
    return sign;
  }
  // "Memory cgroup out of memory: Killed process 4711 (python) ...", of the node: "Out of memory: Killed
  // process ..."
  if (const auto killed = line.find("illed process "); killed != std::string::npos && has("ut of memory")) {
    sign.kind = has("Memory cgroup") ? "oom_kill" : "node_out_of_memory";
    sign.code = number_at(line, killed).value_or(0);
    return sign;
  }
  for (const Pattern& pattern : patterns)
    if (has(pattern.one) && has(pattern.other)) {
      sign.kind = pattern.kind;
      return sign;
    }
  return std::nullopt;
}

}  // namespace holdfast::launcher
