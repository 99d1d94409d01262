#include "checkpoint/index/retention.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <unordered_set>

#include "checkpoint/index/lease.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

/// What cannot be looked at may be there.
bool may_be_there(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 || errno != ENOENT;
}

double written_at(const fs::path& step_dir) {
  struct stat info {};
  if (::stat((step_dir / manifest_file_name).c_str(), &info) != 0) return 0;
  return static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
}

}  // namespace

std::vector<std::int64_t> superfluous(std::span<const Candidate> newest_first, const Retention& retention) {
  const int keep = std::max(1, retention.keep);
  auto older = newest_first.begin();
  for (int sound = 0; sound < keep; ++older) {
    if (older == newest_first.end()) return {};
    sound += older->sound();
  }
  std::unordered_set<std::int64_t> archived;
  double last = -std::numeric_limits<double>::infinity();
  for (auto at = newest_first.rbegin(); at != newest_first.rend(); ++at) {
    const Candidate& candidate = *at;
    if (retention.archive_h <= 0 || !candidate.sound() ||
        candidate.written < last + 3600 * retention.archive_h)
      continue;
    archived.insert(candidate.step);
    last = candidate.written;
  }
  std::vector<std::int64_t> steps;
  for (; older != newest_first.end(); ++older)
    if (older->condition != Condition::Kind::unknown && !older->pinned && !older->leased &&
        !archived.contains(older->step))
      steps.push_back(older->step);
  return steps;
}

std::vector<Candidate> candidates(const fs::path& checkpoints) {
  std::vector<Candidate> found;
  const auto leased = leased_steps(checkpoints);
  for (const std::int64_t step : committed_steps(checkpoints)) {
    const fs::path path = committed_path(checkpoints, step);
    Candidate candidate{step, condition_of(path, step).kind, may_be_there(pin_path(checkpoints, step)), 0,
                        leased.contains(step)};
    if (candidate.sound()) candidate.written = written_at(path);
    found.push_back(candidate);
  }
  return found;
}

std::vector<std::string> outlived(const fs::path& checkpoints, std::span<const Candidate> newest_first) {
  std::int64_t newest = -1;
  for (const Candidate& candidate : newest_first)
    if (candidate.sound()) newest = std::max(newest, candidate.step);
  std::vector<std::string> names;
  for (const std::string& text : files::list(checkpoints))
    if (const Name name = parse_name(text); name.kind == Name::Kind::replaced && name.step < newest &&
                                            condition_of(checkpoints / text).kind != Condition::Kind::unknown)
      names.push_back(text);
  return names;
}

std::vector<std::int64_t> retain(const fs::path& checkpoints, const Retention& retention) {
  const std::vector<Candidate> there = candidates(checkpoints);
  std::vector<std::int64_t> removed;
  std::vector<fs::path> trash;
  for (const std::int64_t step : superfluous(there, retention)) {
    if (may_be_there(pin_path(checkpoints, step))) continue;  // pinned in the meantime
    const fs::path path = committed_path(checkpoints, step), aside = move_to_trash(checkpoints, path, step);
    if (leased_steps(checkpoints).contains(step)) {  // in the meantime: back it goes
      if (::rename(aside.c_str(), path.c_str()) != 0)
        throw system_error("cannot move " + aside.string() + " back", errno);
      continue;
    }
    trash.push_back(aside);
    removed.push_back(step);
  }
  for (const std::string& name : outlived(checkpoints, there))
    trash.push_back(move_to_trash(checkpoints, checkpoints / name, parse_name(name).step));
  if (trash.empty()) return removed;
  files::sync_folder(checkpoints);
  std::error_code ignored;  // what stays behind is trash by name, and the next sweep takes it
  for (const fs::path& path : trash) fs::remove_all(path, ignored);
  return removed;
}

std::vector<std::int64_t> tidy(const fs::path& checkpoints, const Retention& retention, Generation alive,
                               std::int64_t step) {
  auto removed = retain(checkpoints, retention);
  sweep(checkpoints, alive, step);
  sweep_leases(checkpoints);
  return removed;
}

bool pin(const fs::path& checkpoints, std::int64_t step) {
  const auto refuse_missing = [&] {
    if (!may_be_there(committed_path(checkpoints, step)))
      throw Error(Exit::usage, "there is no checkpoint of step " + std::to_string(step),
                  committed_path(checkpoints, step).string() + " does not exist",
                  "See holdfast ckpt ls " + checkpoints.string() + "?");
  };
  refuse_missing();
  if (!files::create_exclusively(pin_path(checkpoints, step), "")) return false;
  try {
    refuse_missing();  // retention may have been on its way
  } catch (...) {
    unpin(checkpoints, step);
    throw;
  }
  return true;
}

bool unpin(const fs::path& checkpoints, std::int64_t step) {
  const fs::path path = pin_path(checkpoints, step);
  if (::unlink(path.c_str()) != 0) {
    if (errno == ENOENT) return false;
    throw system_error("cannot remove " + path.string(), errno);
  }
  files::sync_folder(checkpoints);
  return true;
}

}  // namespace holdfast::checkpoint
