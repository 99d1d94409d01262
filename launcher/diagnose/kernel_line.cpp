#include "launcher/diagnose/kernel_line.hpp"

#include <algorithm>
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

/// How the kernel begins a line, and what else is in it. A '#' stands for one or more hexadecimal digits. A
/// process has a name of at most 15 bytes, which begins some lines: none of these beginnings is as short.
struct Pattern {
  std::string_view begin, other;
  const char* kind;
};
constexpr std::array patterns{
    Pattern{"[Hardware Error]: ", "ncorrected", "machine_check"},
    Pattern{"mce: [Hardware Error]: ", "ncorrected", "machine_check"},
    Pattern{"{#}[Hardware Error]: ", "ncorrected", "machine_check"},
    Pattern{"{#}[Hardware Error]: ", "severity: fatal", "machine_check"},
    Pattern{"Memory failure: 0x#: ", "recovery action", "machine_check"},
    Pattern{"EDAC MC#: # UE ", " page:0x", "machine_check"},
    Pattern{"EXT#-fs (", "): Remounting filesystem read-only", "disk_read_only"},
    Pattern{"mlx5_core #:#:#.#", "health compromised", "nic_failed"},
    Pattern{"mlx5_core #:#:#.#", "fatal", "nic_failed"},
    Pattern{"mlx5_core #:#:#.#", "Fatal", "nic_failed"},
    Pattern{"CPU#: ", "temperature above threshold, cpu clock throttled", "thermal"},
    Pattern{"mce: CPU#: ", "temperature above threshold, cpu clock throttled", "thermal"},
};

bool begins_as(std::string_view line, std::string_view pattern) {
  for (const char c : pattern) {
    const auto digits = line.find_first_not_of("0123456789abcdefABCDEF");
    const std::size_t taken = c == '#' ? std::min(digits, line.size()) : line.starts_with(c) ? 1 : 0;
    if (taken == 0) return false;
    line.remove_prefix(taken);
  }
  return true;
}

/// "python[4711]: segfault at ... in libx.so[...]", "traps: python[4711] ...", "python (4711): Using mlock
/// ulimits ...", "python invoked oom-killer: ...": the names of processes and files in it are chosen by
/// programs.
bool names_a_process(std::string_view line) {
  constexpr std::size_t near_begin = 32;
  for (std::size_t at = 0; (at = line.find_first_of("[(", at)) < near_begin; ++at) {
    const auto end = line.find_first_not_of("0123456789", at + 1);
    if (end != std::string_view::npos && end > at + 1 && (line[end] == ']' || line[end] == ')')) return true;
  }
  return line.find(" invoked oom-killer") != std::string_view::npos ||
         line.find(": page allocation failure") != std::string_view::npos;
}

/// The line after "DRIVER (PCI address): ", if it begins with that; else nothing.
std::optional<std::string_view> after_address(std::string_view line, std::string_view driver) {
  if (!line.starts_with(driver)) return std::nullopt;
  line.remove_prefix(driver.size());
  const auto closed = line.find("): ");
  const std::string_view address = line.substr(0, std::min(closed, line.size()));
  // With MIG it goes on: "PCI:0000:3b:00 GPU-I:01 GPU-CI:02". No process has so long a name.
  if (closed == std::string_view::npos || address.size() < std::string_view("0000:3b").size() ||
      address.find_first_not_of("PCI:0123456789abcdefABCDEF. GU-") != std::string_view::npos)
    return std::nullopt;
  return line.substr(closed + 3);
}

}  // namespace

std::optional<control::Sign> sign_of_kernel_line(const std::string& line) {
  if (names_a_process(line)) return std::nullopt;
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
    if (begins_as(line, pattern.begin) && line.find(pattern.other) != std::string::npos) {
      sign.kind = pattern.kind;
      return sign;
    }
  return std::nullopt;
}

}  // namespace holdfast::launcher
