#include "launcher/supervise/ledger.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/printable.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr double day = 86400;
constexpr std::size_t max_line = 4096;       // one write of this size is not torn by others'
constexpr std::size_t max_evidence = 1024;   // bytes, before JSON escapes
constexpr std::size_t max_read = 256 << 10;  // of a file's end: a thousand failures
constexpr std::size_t last_kept = 5;
constexpr double fading_s = 7 * day;
constexpr double least_weight = 0.05;  // of a failure three weeks ago

/// Accepts only names that are plain file names: names come from SLURM, and the ledger may be shared.
fs::path file_of(const fs::path& folder, const std::string& node) {
  const bool plain = !node.empty() && node.size() <= 255 && node.front() != '.' &&
                     std::all_of(node.begin(), node.end(), [](unsigned char c) {
                       return std::isalnum(c) || c == '-' || c == '_' || c == '.';
                     });
  if (!plain)
    throw Error(Exit::runtime, "the ledger cannot keep a node called '" + node + "'",
                "it is not a host name");
  return folder / (node + ".jsonl");
}

/// The first `limit` bytes of text that others wrote.
std::string begin_of(std::string text, std::size_t limit) {
  if (text.size() > limit) text.resize(limit);
  return printable_line(text);
}

std::string to_line(const LedgerEntry& e) {
  json line = {{"time", e.time},
               {"job", begin_of(e.job, 64)},
               {"cause", begin_of(e.cause, 64)},
               {"evidence", begin_of(e.evidence, max_evidence)},
               {"hardware", e.hardware}};
  if (e.xid != 0) line["xid"] = e.xid;
  if (!e.gpu.empty()) line["gpu"] = begin_of(e.gpu, 64);
  constexpr auto damaged_text = json::error_handler_t::replace;
  std::string text = line.dump(-1, ' ', true, damaged_text);
  if (text.size() + 2 > max_line) line["evidence"] = "", text = line.dump(-1, ' ', true, damaged_text);
  return text + "\n";
}

/// False for a line that is torn, malformed or from the future.
bool read_line(std::string_view text, double now, LedgerEntry& e) {
  const json line = json_from(text);
  if (!line.is_object() || !line.contains("time") || !line["time"].is_number() || !line.contains("cause") ||
      !line["cause"].is_string() || !line.contains("hardware") || !line["hardware"].is_boolean())
    return false;
  const auto words = [&](const char* key, std::size_t limit) {
    const auto found = line.find(key);
    return found != line.end() && found->is_string() ? begin_of(found->get<std::string>(), limit)
                                                     : std::string();
  };
  e.time = line["time"].get<double>();
  if (!std::isfinite(e.time) || e.time > now + day) return false;
  e.hardware = line["hardware"].get<bool>();
  e.job = words("job", 64);
  e.cause = words("cause", 64);
  e.evidence = words("evidence", max_evidence);
  e.gpu = words("gpu", 64);
  const auto xid = line.find("xid");
  e.xid = xid != line.end() && xid->is_number_integer() ? xid->get<int>() : 0;
  return true;
}

/// The end of the file, from the first whole line; empty when there is none. Throws Error.
std::string read_tail(const fs::path& file) {
  const files::Fd fd = files::try_open(file, O_RDONLY | O_NOFOLLOW);
  if (!fd && errno == ENOENT) return "";
  if (!fd) throw system_error("cannot read " + file.string(), errno);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) throw system_error("cannot read " + file.string(), errno);
  const auto size = as_size(facts.st_size);
  std::string text(std::min(size, max_read), '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), static_cast<off_t>(size - text.size()));
  if (got < 0) throw system_error("cannot read " + file.string(), errno);
  text.resize(got);
  if (size > max_read) text.erase(0, std::min(text.find('\n'), text.size()));
  return text;
}

NodeHistory history_of(std::string node, const std::string& text, double now) {
  NodeHistory history;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    LedgerEntry e;
    e.node = node;
    if (end < text.size() && read_line(std::string_view(text).substr(at, end - at), now, e) && e.hardware) {
      history.weight += faded(now - e.time);
      history.last.push_back(std::move(e));
    }
    at = end + 1;
  }
  std::stable_sort(history.last.begin(), history.last.end(),
                   [](const LedgerEntry& a, const LedgerEntry& b) { return a.time > b.time; });
  if (history.last.size() > last_kept) history.last.resize(last_kept);
  return history;
}

}  // namespace

void append_to_ledger(const fs::path& folder, const LedgerEntry& entry) {
  const fs::path file = file_of(folder, entry.node);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw system_error("cannot make the folder of the ledger " + folder.string(), errno,
                       "Name one that can be written (supervise.ledger)?");
  struct stat facts {};
  const bool of_group = ::stat(folder.c_str(), &facts) == 0 && (facts.st_mode & S_IWGRP);
  const files::Fd fd = files::open(file, O_RDWR | O_APPEND | O_CREAT, 0600);
  if (::fstat(fd.get(), &facts) != 0) throw system_error("cannot write " + file.string(), errno);
  // Independent of the umask of the first writer.
  if (of_group && facts.st_uid == ::geteuid() && (facts.st_mode & 0777) == 0600) ::fchmod(fd.get(), 0660);
  std::string line = to_line(entry);
  char last =
      '\n';  // another byte ends a torn line, or one that is being written: then an empty line may result
  if (facts.st_size > 0 && ::pread(fd.get(), &last, 1, facts.st_size - 1) == 1 && last != '\n')
    line.insert(0, 1, '\n');
  const ssize_t written = ::write(fd.get(), line.data(), line.size());
  if (written < 0) throw system_error("cannot write " + file.string(), errno);
  if (as_size(written) != line.size())
    throw Error(Exit::runtime, "cannot write " + file.string(), "only a part of the line was written");
}

double faded(double age_s) { return std::exp(-std::max(0.0, age_s) / fading_s); }

int whole_failures(double weight) {
  return static_cast<int>(std::ceil(std::max(0.0, weight - least_weight)));
}

int NodeHistory::past_failures() const { return whole_failures(weight); }

std::map<std::string, NodeHistory> read_ledger(const fs::path& folder, const std::vector<std::string>& nodes,
                                               double now, std::string& problem) {
  std::map<std::string, NodeHistory> histories;
  for (const auto& node : nodes) {
    auto& history = histories[node];
    try {
      history = history_of(node, read_tail(file_of(folder, node)), now);
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
    }
  }
  return histories;
}

}  // namespace holdfast::launcher
