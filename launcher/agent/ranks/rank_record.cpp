#include "launcher/agent/ranks/rank_record.hpp"

#include <charconv>
#include <fstream>

namespace holdfast::launcher {
namespace {

files::fs::path start_file(const Scratch& scratch, int rank) {
  return scratch.folder / ("rank-" + scratch.node + "-" + std::to_string(rank));
}
files::fs::path end_file(const Scratch& scratch, int rank) {
  return scratch.folder / ("end-" + scratch.node + "-" + std::to_string(rank));
}

/// Two integers from a file that may be missing, of another version, or just being removed.
std::optional<std::pair<int, int>> two_numbers(const files::fs::path& path) {
  std::ifstream text(path);
  std::pair<int, int> numbers;
  if (!(text >> numbers.first >> numbers.second)) return std::nullopt;
  return numbers;
}

}  // namespace

void keep_rank_record(const Scratch& scratch, const RankRecord& record) {
  files::replace_atomically(start_file(scratch, record.rank),
                            std::to_string(record.attempt) + " " + std::to_string(record.pid) + "\n");
}

void keep_rank_end(const Scratch& scratch, pid_t pid, int status) {
  for (const auto& record : rank_records(scratch))
    if (record.pid == pid)
      files::replace_atomically(end_file(scratch, record.rank),
                                std::to_string(pid) + " " + std::to_string(status) + "\n");
}

std::vector<RankRecord> rank_records(const Scratch& scratch) {
  std::vector<RankRecord> out;
  const std::string prefix = "rank-" + scratch.node + "-";
  for (const auto& name : files::list(scratch.folder)) {
    if (!name.starts_with(prefix)) continue;
    RankRecord record;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, record.rank);
    if (error != std::errc{} || stop != end) continue;
    const auto start = two_numbers(scratch.folder / name);
    if (!start) continue;
    record.attempt = start->first;
    record.pid = start->second;
    const auto ended = two_numbers(end_file(scratch, record.rank));
    if (ended && ended->first == record.pid) record.status = ended->second;
    out.push_back(record);
  }
  return out;
}

void remove_rank_records(const Scratch& scratch) {
  std::error_code ignored;
  for (const auto& name : files::list(scratch.folder))
    for (const char* kind : {"rank-", "end-"})
      if (name.starts_with(kind + scratch.node + "-")) files::fs::remove(scratch.folder / name, ignored);
}

}  // namespace holdfast::launcher
