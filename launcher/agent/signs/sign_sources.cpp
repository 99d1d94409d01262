#include "launcher/agent/signs/sign_sources.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launcher/diagnose/kernel_line.hpp"
#include "launcher/diagnose/signs.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t max_records = 1000;  // of the kernel's log, in one poll
constexpr std::size_t max_injected = 64 << 10;
constexpr double clock_jump_s = 1;

control::Sign sign_of(const char* kind, std::string text, std::int64_t code = 0) {
  return {kind, -1, code, 0, std::move(text)};
}

/// Nothing: unknown.
std::optional<bool> is_full(const fs::path& folder, std::string& text) {
  struct statvfs facts {};
  if (::statvfs(folder.c_str(), &facts) != 0 || facts.f_blocks == 0) return std::nullopt;
  const double block = static_cast<double>(facts.f_frsize),
               left = block * static_cast<double>(facts.f_bavail),
               all = block * static_cast<double>(facts.f_blocks);
  const bool no_inode = facts.f_files > 0 && facts.f_favail == 0;
  text = no_inode ? fmt::format("{}: no inode is left", folder.string())
                  : fmt::format("{}: {} of {} free", folder.string(), size_text(left), size_text(all));
  return file_system_is_full(left, all, !no_inode);
}

}  // namespace

MemoryKills::MemoryKills(fs::path counter) : counter_(std::move(counter)), known_(read()) {}

std::optional<std::int64_t> MemoryKills::read() const {
  if (counter_.empty()) return std::nullopt;
  std::ifstream file(counter_);
  std::string key;
  std::int64_t value = 0;
  while (file >> key >> value)
    if (key == "oom_kill") return value;
  return std::nullopt;
}

std::vector<control::Sign> MemoryKills::poll() {
  const auto now = read();
  if (!now || !known_ || *now <= *known_) {
    if (now) known_ = now;
    return {};
  }
  const auto before = std::exchange(known_, now);
  return {sign_of("oom_kill", fmt::format("{}: oom_kill {} -> {}", counter_.string(), *before, *now),
                  *now - *before)};
}

fs::path memory_counter_of(const fs::path& proc_cgroup, const fs::path& mount) {
  std::ifstream file(proc_cgroup);
  std::error_code ignored;
  fs::path unified;
  for (std::string line; std::getline(file, line);) {
    // "4:memory:/path" of version 1, "0::/path" of version 2; a machine may have both.
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string which = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const std::string inside = path.substr(std::min<std::size_t>(1, path.size()));
    if (("," + which + ",").find(",memory,") != std::string::npos) {
      const fs::path counter = mount / "memory" / inside / "memory.oom_control";
      if (fs::exists(counter, ignored)) return counter;
    }
    if (which.empty()) unified = mount / inside / "memory.events";
  }
  return !unified.empty() && fs::exists(unified, ignored) ? unified : fs::path();
}

bool file_system_is_full(double left, double all, bool inodes_left) {
  constexpr double mib = 1 << 20;
  return !inodes_left || left < std::max(mib, all / 1000);
}

std::vector<control::Sign> LocalSpace::poll() {
  std::vector<control::Sign> out;
  for (const auto& folder : folders_) {
    std::string text;
    const auto full = is_full(folder, text);
    if (full && *full && !std::exchange(full_[folder], true)) out.push_back(sign_of("no_space_local", text));
    if (full && !*full) full_[folder] = false;
  }
  return out;
}

std::vector<control::Sign> KernelLog::poll() {
  std::vector<control::Sign> out;
  char record[8192];  // a read returns one whole record: "priority,number,microseconds,flags;text\n
                      // KEY=value\n"
  for (std::size_t n = 0; log_.file && n < max_records; ++n) {
    const ssize_t got = ::read(log_.file.get(), record, sizeof record);
    if (got < 0 && errno == EPIPE) continue;  // older ones were overwritten
    if (got <= 0) break;
    std::istringstream lines(std::string(record, as_size(got)));
    std::string line;
    std::getline(lines, line);
    const auto text = line.find(';');
    if (auto sign = sign_of_kernel_line(text == std::string::npos ? line : line.substr(text + 1)))
      out.push_back(std::move(*sign));
  }
  return out;
}

ClockJumps::ClockJumps(std::function<double()> steady_now, std::function<double()> unix_now)
    : steady_now_(std::move(steady_now)),
      unix_now_(std::move(unix_now)),
      at_(steady_now_()),
      unix_at_(unix_now_()) {}

std::vector<control::Sign> ClockJumps::poll() {
  const double now = steady_now_(), unix_now = unix_now_(), jump = unix_now - unix_at_ - (now - at_);
  at_ = now;
  unix_at_ = unix_now;
  if (std::abs(jump) <= clock_jump_s) return {};
  return {sign_of("clock_jump", fmt::format("{:+.1f} s", jump), std::llround(1e3 * jump))};
}

int SharedFolder::error_of_touch() const {
  std::error_code error;
  if (!fs::is_directory(folder_, error)) return error ? error.value() : ENOTDIR;
  if (touched_.empty()) return 0;
  const files::Fd file = files::try_open(touched_, O_WRONLY | O_APPEND | O_CREAT, files::for_owner);
  return file && ::futimens(file.get(), nullptr) == 0 ? 0 : errno;
}

std::vector<control::Sign> SharedFolder::poll() {
  std::vector<control::Sign> out;
  const int error = error_of_touch();
  if (error == EMFILE || error == ENFILE || error == ENOMEM) return out;
  const bool gone = error != 0;
  if (gone != std::exchange(gone_, gone))
    out.push_back(sign_of(gone ? "shared_gone" : "shared_back", folder_.string(), error));
  std::string text;
  if (const auto full = gone ? std::nullopt : is_full(folder_, text)) {
    if (*full && !full_) out.push_back(sign_of("no_space", text));
    full_ = *full;
  }
  return out;
}

InjectedSigns::InjectedSigns(fs::path file) : file_(std::move(file)) {
  std::error_code error;
  const auto size = fs::file_size(file_, error);
  read_ = error ? 0 : size;  // the present lines were for an earlier agent
}

std::vector<control::Sign> InjectedSigns::poll() {
  std::vector<control::Sign> out;
  std::string text;
  try {
    if (!file_.empty() && files::is_there(file_)) text = files::read_part(file_, read_, max_injected);
  } catch (const Error&) {  // read at the next poll
  }
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);  // the rest is incomplete
  read_ += text.size();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto entry = json_from(line);
    const auto kind = typed<std::string>(entry, "kind");
    // A mistake in the drill is passed over: its report will say that nothing happened.
    if (!kind || !kind_called(*kind)) continue;
    if (entry.contains("code") && !typed<std::int64_t>(entry, "code")) continue;
    out.push_back({*kind, typed<int>(entry, "rank").value_or(-1),
                   typed<std::int64_t>(entry, "code").value_or(0), 0,
                   typed<std::string>(entry, "text").value_or("")});
  }
  return out;
}

}  // namespace holdfast::launcher
