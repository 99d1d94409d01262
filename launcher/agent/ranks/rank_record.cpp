#include "launcher/agent/ranks/rank_record.hpp"

#include <charconv>
#include <sstream>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

files::fs::path start_file(const Scratch& scratch, int rank) {
  return scratch.folder / ("rank-" + scratch.node + "-" + std::to_string(rank));
}
files::fs::path end_file(const Scratch& scratch, int rank) {
  return scratch.folder / ("end-" + scratch.node + "-" + std::to_string(rank));
}
files::fs::path final_file(const Scratch& scratch, int rank) {
  return scratch.folder / ("final-" + scratch.node + "-" + std::to_string(rank));
}

/// Two integers from a file that may be missing, of another version, or just being removed.
std::optional<std::pair<int, int>> two_numbers(const files::fs::path& path) {
  std::pair<int, int> numbers;
  std::istringstream text;
  try {
    text.str(files::read_text(path));
  } catch (const Error&) {
    return std::nullopt;
  }
  if (!(text >> numbers.first >> numbers.second)) return std::nullopt;
  return numbers;
}

std::optional<control::RankFinished> final_state(const Scratch& scratch, int rank, int attempt) {
  if (!files::is_there(final_file(scratch, rank))) return std::nullopt;
  std::string why;
  const auto kept = control::decode<control::RankToAgent>(files::read_text(final_file(scratch, rank)), why);
  const auto* finished = kept ? std::get_if<control::RankFinished>(&*kept) : nullptr;
  return finished && finished->attempt == attempt ? std::optional(*finished) : std::nullopt;
}

}  // namespace

void keep_rank_record(const Scratch& scratch, const RankRecord& record) {
  files::replace_atomically(start_file(scratch, record.rank),
                            std::to_string(record.attempt) + " " + std::to_string(record.pid) + "\n");
}

void keep_final_state(const Scratch& scratch, const control::RankFinished& finished) {
  files::replace_atomically(final_file(scratch, finished.rank), control::encode(finished));
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
    record.finished = final_state(scratch, record.rank, record.attempt);
    out.push_back(record);
  }
  return out;
}

void remove_rank_records(const Scratch& scratch) {
  std::error_code ignored;
  for (const auto& name : files::list(scratch.folder))
    for (const char* kind : {"rank-", "end-", "final-"})
      if (name.starts_with(kind + scratch.node + "-")) files::fs::remove(scratch.folder / name, ignored);
}

}  // namespace holdfast::launcher
