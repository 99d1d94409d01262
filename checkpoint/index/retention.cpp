// retain() does all of it, in this order. candidates() lists the committed checkpoints from the newest on: in
// full until as many are sound as are kept, and by their commit records from there on. removable() lets
// superfluous() decide, for holdfast-train's and for other programs' separately. For each step that may go, a
// trash folder is made first, and only then come the last looks at its pin, its leases and the newest
// checkpoints. A lease or a pin is made first and then looks for trash, so that one of the two sees the
// other.
//
// Then the folders are renamed to trash, the checkpoints folder is synced, the files of other programs are
// removed, and last the trash. remove_files() looks at all files of a checkpoint before it unlinks the first;
// one that is not what was committed keeps all of them.
//
// Whatever cannot be read now stays. A crash leaves trash, or files of another program that nobody lists; it
// never leaves a part of a checkpoint under its committed name.
#include "checkpoint/index/retention.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_set>

#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/lease.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::checkpoint {
namespace {

/// What cannot be looked at may be there.
bool may_be_there(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 || errno != ENOENT;
}

/// What the record of the commit says of a checkpoint; nothing when the manifest has to be read.
std::optional<Candidate> by_record(const fs::path& step_dir, std::int64_t step) try {
  const auto record = read_commit_record(step_dir);
  if (!record) return {};
  struct stat info {};
  if (::stat((step_dir / manifest_file_name).c_str(), &info) != 0)
    return Candidate{step, Condition::Kind::unknown};
  const bool fits = record->step == step && info.st_size == record->manifest_bytes;
  return Candidate{step,  fits ? Condition::Kind::sound : Condition::Kind::damaged,
                   false, static_cast<double>(record->committed),
                   false, record->files};
} catch (const Damaged&) {
  return {};
} catch (const Error&) {
  return Candidate{step, Condition::Kind::unknown};
}

double committed_at(const fs::path& step_dir) {
  try {
    if (const auto record = read_commit_record(step_dir)) return static_cast<double>(record->committed);
  } catch (const Error&) {
    // Then by the file's time, as if there were none.
  }
  struct stat info {};
  if (::stat((step_dir / manifest_file_name).c_str(), &info) != 0) return 0;
  return static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
}

/// By what is left of a damaged one. Throws Unreadable.
bool is_of_files(const fs::path& step_dir) {
  try {
    if (const auto record = read_commit_record(step_dir)) return record->files;
  } catch (const Damaged&) {
    // Then by its first line.
  }
  try {
    return lists_files(read_manifest_text(step_dir));
  } catch (const Damaged&) {
    return false;
  }
}

/// `listed`: the files of newer sound ones of other programs. Those that each save writes again, as these
/// tell, make no checkpoint unknown.
Candidate in_full(const fs::path& step_dir, std::int64_t step, std::set<fs::path>& listed) {
  const Condition found = condition_of(step_dir, step);
  Candidate candidate{step, found.kind};
  const auto& files = found.files;
  candidate.files = files.has_value();
  try {
    if (found.kind == Condition::Kind::damaged) candidate.files = is_of_files(step_dir);
  } catch (const Unreadable&) {
    candidate.condition = Condition::Kind::unknown;
  }
  const auto is_listed = [&](const fs::path& file) { return listed.contains(file); };
  if (files && std::ranges::all_of(found.written_again, is_listed))
    candidate.condition = Condition::Kind::sound;
  if (!candidate.sound()) return candidate;
  candidate.committed = committed_at(step_dir);
  if (files)
    for (const ListedFile& file : files->files) listed.insert(path_of(*files, file));
  return candidate;
}

/// Nobody knows what it is.
bool is_unknown(const fs::path& step_dir, std::int64_t step = -1) {
  const Condition found = condition_of(step_dir, step);
  return found.kind == Condition::Kind::unknown && found.written_again.empty();
}

/// What the checkpoints of other programs that stay have.
struct Needed {
  std::set<fs::path> files;
  std::set<fs::path> folders;  ///< in which these lie, up to the root
  std::set<fs::path> homes;    ///< in which the folders of the manifests lie
};
void add_files(const FilesManifest& manifest, Needed& needed) {
  needed.homes.insert(fs::path(manifest.folder).parent_path());
  for (const ListedFile& file : manifest.files) {
    const fs::path path = path_of(manifest, file);
    needed.files.insert(path);
    fs::path folder = path.parent_path();
    while (needed.folders.insert(folder).second) folder = folder.parent_path();
  }
}

/// Nothing: one of those that stay cannot be read, or is damaged.
std::optional<Needed> needed_files(const fs::path& checkpoints, std::span<const Candidate> there,
                                   std::span<const std::int64_t> go) try {
  Needed needed;
  for (const Candidate& candidate : there) {
    const bool may_list = candidate.files || candidate.condition == Condition::Kind::unknown;
    if (!may_list || std::ranges::find(go, candidate.step) != go.end()) continue;
    const std::string text = read_manifest_text(committed_path(checkpoints, candidate.step));
    if (lists_files(text))
      add_files(parse_files_manifest(text), needed);
    else
      parse_manifest(text);  // it lists none, if that is what it is
  }
  return needed;
} catch (const Error&) {
  return {};
}

/// A checkpoint of another program that is out of the way.
struct GoneFiles {
  FilesManifest manifest;
  fs::path folder;  ///< of the manifest
};

/// The files that were in this folder when it had no link in its path may be elsewhere.
bool is_behind_a_link(const fs::path& folder) {
  std::error_code failed;
  const fs::path real = fs::canonical(folder, failed);
  return failed ? failed != std::errc::no_such_file_or_directory : real != folder;
}

/// A file that was committed, as it is now.
enum class Fate { goes, stays, gone, unknown };
/// Unknown: errno says why. Throws Damaged when it is not what was committed, and no later save has written
/// it again.
Fate fate_of(const fs::path& path, const ListedFile& file, const timespec& committed) {
  struct stat now {};
  if (::lstat(path.c_str(), &now) != 0) return errno == ENOENT ? Fate::gone : Fate::unknown;
  if (is_later(now.st_mtim, committed)) return Fate::stays;
  if (!S_ISREG(now.st_mode)) throw Damaged(path.string(), "it is not a regular file");
  if (now.st_uid != ::geteuid()) throw Damaged(path.string(), "it belongs to another user");
  if (now.st_size != file.bytes)
    throw Damaged(path.string(), "it has " + std::to_string(now.st_size) + " bytes, not " +
                                     std::to_string(file.bytes) + " as when it was committed");
  return Fate::goes;
}

/// What was not written again since, and the folders below the manifest's that are empty then; that one, too,
/// where one that is needed lies beside it. Nothing, where one of them is not what was committed.
void remove_files(const GoneFiles& gone, const Needed& needed) {
  const FilesManifest& manifest = gone.manifest;
  struct stat committed {};
  if (::stat((gone.folder / manifest_file_name).c_str(), &committed) != 0) return;
  std::set<fs::path, std::greater<>> folders;  // what lies in a folder comes before it
  const fs::path top = manifest.folder;
  if (needed.homes.contains(top.parent_path()) && !needed.folders.contains(top) && !is_behind_a_link(top))
    folders.insert(top);
  std::string why;
  const auto stays = [&](const fs::path& path, const char* reason) {
    if (why.empty()) why = path.string() + ": " + reason;
  };
  std::map<fs::path, bool> behind_links;
  std::vector<fs::path> go;
  try {
    for (const ListedFile& file : manifest.files) {
      const fs::path path = path_of(manifest, file);
      if (needed.files.contains(path)) continue;
      const auto [place, is_new] = behind_links.try_emplace(path.parent_path());
      if (is_new) place->second = is_behind_a_link(place->first);
      if (place->second) {
        stays(path, "there is a link in its path now");
        continue;
      }
      const Fate fate = fate_of(path, file, committed.st_mtim);
      if (fate == Fate::unknown) stays(path, std::strerror(errno));  // it may have been written again
      if (fate == Fate::stays || fate == Fate::unknown) continue;
      if (fate == Fate::goes) go.push_back(path);
      fs::path folder = path.parent_path();
      while (folder != top && !needed.folders.contains(folder) && folders.insert(folder).second)
        folder = folder.parent_path();
    }
  } catch (const Damaged& e) {
    return log::warn("files of the checkpoint of step {} stay below {}: {}", manifest.step, manifest.folder,
                     e.what());
  }
  for (const fs::path& path : go)
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) stays(path, std::strerror(errno));
  for (const fs::path& folder : folders) ::rmdir(folder.c_str());
  if (!why.empty()) log::warn("files of the checkpoint of step {} stay: {}", manifest.step, why);
}

bool is_below(const fs::path& path, const fs::path& folder) {
  std::error_code failed;
  const fs::path real = fs::canonical(folder, failed);
  return !failed && std::ranges::mismatch(real, path).in1 == real.end();
}

/// Nothing of a run of which this one is a copy, or that was moved, and nothing elsewhere than in `files_in`.
void remove_own_files(const fs::path& checkpoints, const GoneFiles& gone, const Needed& needed,
                      const std::vector<fs::path>& files_in) {
  const FilesManifest& manifest = gone.manifest;
  std::error_code failed;
  if (fs::canonical(checkpoints, failed) != manifest.checkpoints)
    return log::warn("files of the checkpoint of step {} stay below {}: it was committed in {}, not here",
                     manifest.step, manifest.folder, manifest.checkpoints);
  const auto holds_them = [&](const fs::path& folder) { return is_below(manifest.folder, folder); };
  if (std::ranges::any_of(files_in, holds_them)) return remove_files(gone, needed);
  log::warn(
      "files of the checkpoint of step {} stay below {}: that is not in the run directory, and neither "
      "checkpoint.files_in nor 'ckpt prune --files-in' names it",
      manifest.step, manifest.folder);
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
        candidate.committed < last + 3600 * retention.archive_h)
      continue;
    archived.insert(candidate.step);
    last = candidate.committed;
  }
  std::vector<std::int64_t> steps;
  for (; older != newest_first.end(); ++older)
    if (older->condition != Condition::Kind::unknown && !older->pinned && !older->leased &&
        !archived.contains(older->step))
      steps.push_back(older->step);
  return steps;
}

std::vector<Candidate> candidates(const fs::path& checkpoints, int keep) {
  std::vector<Candidate> found;
  std::set<fs::path> listed;
  int sound = 0;
  bool best_found = false;  // older ones that are marked were it before
  const auto leased = leased_steps(checkpoints);
  for (const std::int64_t step : committed_steps(checkpoints)) {
    const fs::path path = committed_path(checkpoints, step);
    std::optional<Candidate> candidate;
    if (sound >= std::max(1, keep)) candidate = by_record(path, step);
    if (!candidate) candidate = in_full(path, step, listed);
    const bool best = !best_found && may_be_there(best_path(checkpoints, step));
    best_found |= best && candidate->sound();
    candidate->pinned = best || may_be_there(pin_path(checkpoints, step));
    candidate->leased = leased.contains(step);
    sound += candidate->sound();
    found.push_back(*candidate);
  }
  return found;
}

std::vector<std::int64_t> removable(const fs::path& checkpoints, const Retention& retention,
                                    std::span<const Candidate> newest_first) {
  std::vector<Candidate> own, of_programs;
  for (const Candidate& candidate : newest_first) (candidate.files ? of_programs : own).push_back(candidate);
  std::vector<std::int64_t> steps = superfluous(own, retention);
  if (retention.keep_files > 0)
    std::ranges::copy(superfluous(of_programs, {retention.keep_files, retention.archive_h}),
                      std::back_inserter(steps));
  std::ranges::sort(steps, std::greater<>());
  std::erase_if(steps,
                [&](std::int64_t step) { return is_unknown(committed_path(checkpoints, step), step); });
  return steps;
}

std::vector<std::string> outlived(const fs::path& checkpoints, std::span<const Candidate> newest_first) {
  std::int64_t newest = -1;
  for (const Candidate& candidate : newest_first)
    if (candidate.sound()) newest = std::max(newest, candidate.step);
  std::vector<std::string> names;
  for (const std::string& text : entries_of(checkpoints))
    if (const Name name = parse_name(text);
        name.kind == Name::Kind::replaced && name.step < newest && !is_unknown(checkpoints / text))
      names.push_back(text);
  return names;
}

std::vector<std::int64_t> retain(const fs::path& checkpoints, const Retention& retention) {
  const std::vector<Candidate> there =
      candidates(checkpoints, std::max(retention.keep, retention.keep_files));
  std::vector<std::int64_t> removed;
  std::vector<fs::path> trash;
  std::vector<GoneFiles> of_programs;
  // Ranks that start again from earlier state put later checkpoints away: then nothing rests on those.
  const auto newest_are_there = [&](bool files) {
    int kept = 0;
    for (const Candidate& candidate : there) {
      if (kept == (files ? retention.keep_files : retention.keep)) break;
      if (!candidate.sound() || candidate.files != files) continue;
      if (!may_be_there(committed_path(checkpoints, candidate.step))) return false;
      ++kept;
    }
    return true;
  };
  const auto go = removable(checkpoints, retention, there);
  std::optional<Needed> needed;
  if (retention.keep_files > 0) needed = needed_files(checkpoints, there, go);
  for (const std::int64_t step : go) {
    const fs::path path = committed_path(checkpoints, step);
    const bool of_program = std::ranges::find(there, step, &Candidate::step)->files;
    if (of_program && !needed) continue;
    std::optional<FilesManifest> files;  // of a damaged manifest nobody knows them
    if (of_program) files = manifest_of_files(path);
    // First the trash, then a look for those who came in the meantime: see wait_for_retention().
    const fs::path aside = make_trash(checkpoints, step);
    if (may_be_there(pin_path(checkpoints, step)) || leased_steps(checkpoints).contains(step) ||
        !newest_are_there(of_program)) {
      ::rmdir(aside.c_str());
      if (files) add_files(*files, *needed);
      if (of_program && !files) needed.reset();
      continue;
    }
    if (::rename(path.c_str(), aside.c_str()) != 0)
      throw system_error("cannot move " + path.string() + " away", errno);
    trash.push_back(aside);
    removed.push_back(step);
    if (files) of_programs.push_back({*files, aside});
  }
  for (const std::string& name : outlived(checkpoints, there))
    trash.push_back(move_to_trash(checkpoints, checkpoints / name, parse_name(name).step));
  if (trash.empty()) return removed;
  files::sync_folder(checkpoints);
  for (const GoneFiles& gone : of_programs)
    if (needed) remove_own_files(checkpoints, gone, *needed, retention.files_in);
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
  wait_for_retention(checkpoints, step);
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
