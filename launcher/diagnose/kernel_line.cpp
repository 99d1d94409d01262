#include "launcher/diagnose/kernel_line.hpp"

#include <algorithm>
#include <array>
#include <cctype>
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
  const char* one;  ///< begins within the first near_begin bytes
  const char* other;
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
constexpr std::size_t near_begin = 32;

bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// "python[4711]: segfault at ... in libx.so[...]", "traps: python[4711] ...", "python invoked oom-killer:
/// ...": the names of processes and files in it are chosen by programs.
bool names_a_process(std::string_view line) {
  const auto open = line.substr(0, near_begin).find('[');
  const auto closed = open == std::string_view::npos ? open : line.find(']', open);
  if (closed != std::string_view::npos && closed > open + 1 &&
      std::all_of(line.begin() + static_cast<std::ptrdiff_t>(open) + 1,
                  line.begin() + static_cast<std::ptrdiff_t>(closed), digit))
    return true;
  return line.find(" invoked oom-killer") != std::string_view::npos;
}

/// The line after "DRIVER (PCI address): ", if it begins with that; else nothing.
std::optional<std::string_view> after_address(std::string_view line, std::string_view driver) {
  if (!line.starts_with(driver)) return std::nullopt;
  line.remove_prefix(driver.size());
  const auto closed = line.find("): ");
  const std::string_view address = line.substr(0, std::min(closed, line.size()));
  if (closed == std::string_view::npos || address.empty() ||
      address.find_first_not_of("PCI:0123456789abcdefABCDEF.") != std::string_view::npos)
    return std::nullopt;
  return line.substr(closed + 3);
}

}  // namespace

std::optional<control::Sign> sign_of_kernel_line(const std::string& line) {
  if (names_a_process(line)) return std::nullopt;
  const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
  control::Sign sign;
  sign.text = line.substr(0, longest_text);
  // "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
  if (const auto xid = after_address(line, "NVRM: Xid (")) {
    const auto number = number_at(*xid, 0);
    if (!number) return std::nullopt;
    sign.kind = "xid";
    sign.code = *number;
    return sign;
  }
  // "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
  if (const auto name = line.find(':'); line.starts_with("nvidia-nvswitch") && name != std::string::npos) {
    const auto sxid = after_address(std::string_view(line).substr(name), ": SXid (");
    if (!sxid || sxid->find(", Fatal") == std::string_view::npos) return std::nullopt;
    sign.kind = "nvlink_error";
    sign.code = number_at(*sxid, 0).value_or(0);
    return sign;
  }
  // "Memory cgroup out of memory: Killed process 4711 (python) ...", of the node: "Out of memory: Killed
  // process ..."
  const bool of_job = line.starts_with("Memory cgroup out of memory");
  if (const auto killed = line.find("illed process ");
      killed != std::string::npos && (of_job || line.starts_with("Out of memory"))) {
    sign.kind = of_job ? "oom_kill" : "node_out_of_memory";
    sign.code = number_at(line, killed).value_or(0);
    return sign;
  }
  for (const Pattern& pattern : patterns)
    if (line.find(pattern.one) < near_begin && has(pattern.other)) {
      sign.kind = pattern.kind;
      return sign;
    }
  return std::nullopt;
}

}  // namespace holdfast::launcher
