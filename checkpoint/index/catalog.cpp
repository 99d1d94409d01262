// All decisions here are made by names. parse_name() accepts a name only if print_name() would write exactly
// that one, so that a file of anybody else is never taken for one of Holdfast's. A manifest is read only
// where somebody asks for the condition of a checkpoint.
//
// sound_manifest() and sound_condition() read it, compare its step with the folder's and the sizes of files
// with those on disk, and throw what they find. condition_of() makes a value of that. The searches for the
// newest sound checkpoint go on to an older one only where the newer is proven damaged, or, for a folder of
// any kind, written again; every other Error ends them.
//
// A folder is removed in two steps: it is renamed to a trash name, and emptied only then. A process that is
// killed between the two leaves trash, which a later sweep removes.
#include "checkpoint/index/catalog.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

/// Reads a decimal number off the front of `text`.
template <class Number>
bool take_number(std::string_view& text, Number& number, int base = 10) {
  if (text.empty() || text.front() == '-') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(as_size(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string padded(const char* format, std::int64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, format, static_cast<long long>(number));
  return text;
}

}  // namespace

Name parse_name(std::string_view text) {
  const std::string_view whole = text;
  Name name;
  if (take(text, "step-") && take_number(text, name.step)) {
    if (text.empty()) name.kind = Name::Kind::committed;
    if (take(text, ".tmp-") && take_number(text, name.generation.term) && take(text, "-") &&
        take_number(text, name.generation.attempt) && text.empty())
      name.kind = Name::Kind::temporary;
    if (take(text, ".replaced-") && take_number(text, name.serial) && text.empty())
      name.kind = Name::Kind::replaced;
    if (text == ".pin") name.kind = Name::Kind::pin;
    if (text == ".best") name.kind = Name::Kind::best;
    if (take(text, ".lease-") && take_number(text, name.lease, 16) && text.empty())
      name.kind = Name::Kind::lease;
  } else if (take(text, ".trash-") && take_number(text, name.step) && take(text, "-") &&
             take_number(text, name.serial) && text.empty()) {
    name.kind = Name::Kind::trash;
  }
  if (name.kind == Name::Kind::other || print_name(name) != whole) return {};
  return name;
}

std::string print_name(const Name& name) {
  const std::string number = padded("%08lld", name.step);
  switch (name.kind) {
    case Name::Kind::committed:
      return "step-" + number;
    case Name::Kind::temporary:
      return "step-" + number + ".tmp-" + std::to_string(name.generation.term) + "-" +
             std::to_string(name.generation.attempt);
    case Name::Kind::replaced:
      return "step-" + number + ".replaced-" + std::to_string(name.serial);
    case Name::Kind::trash:
      return ".trash-" + number + "-" + std::to_string(name.serial);
    case Name::Kind::pin:
      return "step-" + number + ".pin";
    case Name::Kind::best:
      return "step-" + number + ".best";
    case Name::Kind::lease: {
      char text[17];
      std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(name.lease));
      return "step-" + number + ".lease-" + text;
    }
    case Name::Kind::other:
      break;
  }
  return {};
}

fs::path committed_path(const fs::path& checkpoints, std::int64_t step) {
  return checkpoints / print_name({Name::Kind::committed, step, {}, 0});
}

fs::path temporary_path(const fs::path& checkpoints, std::int64_t step, Generation generation) {
  return checkpoints / print_name({Name::Kind::temporary, step, generation, 0});
}

fs::path pin_path(const fs::path& checkpoints, std::int64_t step) {
  return checkpoints / print_name({Name::Kind::pin, step, {}, 0});
}

fs::path best_path(const fs::path& checkpoints, std::int64_t step) {
  return checkpoints / print_name({Name::Kind::best, step, {}, 0});
}

std::string shard_file_name(int rank) { return "shard-" + padded("%05lld", rank) + ".h5"; }

std::vector<std::string> entries_of(const fs::path& checkpoints) try {
  return files::list_or_fail(checkpoints);
} catch (const Error& e) {
  throw Unreadable("the folder " + checkpoints.string(), e.why());
}

std::vector<std::int64_t> committed_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const std::string& text : entries_of(checkpoints))
    if (const Name name = parse_name(text); name.kind == Name::Kind::committed) steps.push_back(name.step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void check_sizes(const fs::path& step_dir, const Manifest& manifest) {
  const std::string which = "checkpoint " + step_dir.string();
  std::string unknown;
  for (const ShardInfo& shard : manifest.shards) {
    struct stat info {};
    if (::stat((step_dir / shard.file).c_str(), &info) != 0) {
      const int reason = errno;
      if (unknown.empty())
        unknown = shard.file + (reason == ENOENT ? " is missing" : std::string(": ") + std::strerror(reason));
    } else if (!S_ISREG(info.st_mode) || info.st_size != shard.bytes) {
      throw Damaged(which + " is damaged", shard.file + " has " + std::to_string(info.st_size) +
                                               " bytes, not " + std::to_string(shard.bytes));
    }
  }
  if (!unknown.empty()) throw Unreadable(which, unknown);
}

namespace {
Manifest sound_manifest(const fs::path& step_dir, std::int64_t step, std::string_view text) {
  Manifest manifest = parse_manifest_of(step_dir, text);
  if (step >= 0 && manifest.point.step != step)
    throw Damaged(step_dir.string() + " holds step " + std::to_string(manifest.point.step));
  check_sizes(step_dir, manifest);
  return manifest;
}

FilesManifest sound_files(const fs::path& step_dir, std::int64_t step, std::string_view text) {
  FilesManifest manifest = parse_files_manifest_of(step_dir, text);
  if (step >= 0 && manifest.step != step)
    throw Damaged(step_dir.string() + " holds step " + std::to_string(manifest.step));
  check_sizes(step_dir, manifest);
  return manifest;
}

/// A sound one of either kind. Throws as sound_manifest() does.
Condition sound_condition(const fs::path& step_dir, std::int64_t step) {
  const std::string text = read_manifest_text(step_dir);
  if (lists_files(text)) return {Condition::Kind::sound, "", {}, sound_files(step_dir, step, text)};
  return {Condition::Kind::sound, "", sound_manifest(step_dir, step, text)};
}

}  // namespace

Manifest sound_manifest(const fs::path& step_dir, std::int64_t step) {
  return sound_manifest(step_dir, step, read_manifest_text(step_dir));
}

Condition condition_of(const fs::path& step_dir, std::int64_t step) {
  try {
    return sound_condition(step_dir, step);
  } catch (const Damaged& e) {
    return {Condition::Kind::damaged, e.what(), {}};
  } catch (const WrittenAgain& e) {
    return {Condition::Kind::unknown, e.what(), {}, e.manifest, e.files};
  } catch (const Error& e) {
    return {Condition::Kind::unknown, e.what(), {}};
  }
}

std::optional<Generation> Condition::generation() const {
  if (manifest) return manifest->generation;
  if (files) return files->generation;
  return {};
}

std::optional<fs::path> newest_sound_folder(const fs::path& checkpoints, std::vector<std::string>* notes) {
  std::optional<WrittenAgain> newest;
  for (const std::int64_t step : committed_steps(checkpoints)) try {
      const fs::path path = committed_path(checkpoints, step);
      sound_condition(path, step);
      return path;
    } catch (const Damaged& e) {  // the one before it
      if (notes) notes->emplace_back(e.what());
    } catch (const WrittenAgain& e) {
      if (notes) notes->emplace_back(e.what());
      if (!newest) newest.emplace(e);
    }
  if (newest) throw WrittenAgain(*newest);
  return {};
}

std::optional<Found> newest_sound(const fs::path& checkpoints, std::vector<std::string>* notes) {
  for (const std::int64_t step : committed_steps(checkpoints)) {
    const fs::path path = committed_path(checkpoints, step);
    try {
      return Found{step, path, sound_manifest(path, step)};
    } catch (const Damaged& e) {
      if (notes) notes->emplace_back(e.what());
    }
  }
  return {};
}

fs::path make_trash(const fs::path& checkpoints, std::int64_t step) {
  for (int serial = 1;; ++serial) {
    fs::path trash = checkpoints / print_name({Name::Kind::trash, step, {}, serial});
    if (::mkdir(trash.c_str(), 0700) == 0) return trash;
    if (errno != EEXIST) throw system_error("cannot create " + trash.string(), errno);
  }
}

bool has_trash(const fs::path& checkpoints, std::int64_t step) {
  return std::ranges::any_of(entries_of(checkpoints), [&](const std::string& text) {
    const Name name = parse_name(text);
    return name.kind == Name::Kind::trash && name.step == step;
  });
}

fs::path move_to_trash(const fs::path& checkpoints, const fs::path& folder, std::int64_t step) {
  for (int serial = 1;; ++serial) {
    fs::path trash = checkpoints / print_name({Name::Kind::trash, step, {}, serial});
    struct stat info {};
    if (::lstat(trash.c_str(), &info) == 0) continue;
    if (::rename(folder.c_str(), trash.c_str()) == 0) return trash;
    if (errno != ENOTEMPTY && errno != EEXIST)
      throw system_error("cannot move " + folder.string() + " away", errno);
  }
}

void discard(const fs::path& checkpoints, const fs::path& folder, std::int64_t step) noexcept {
  try {
    std::error_code ignored;
    fs::remove_all(move_to_trash(checkpoints, folder, step), ignored);
  } catch (const std::exception&) {
    // It is gone already, or the next sweep tries again.
  }
}

void sweep(const fs::path& checkpoints, Generation alive, std::int64_t done_step) {
  std::error_code ignored;
  for (const std::string& text : entries_of(checkpoints)) {
    const Name name = parse_name(text);
    const bool dead = name.generation < alive || (name.generation == alive && name.step <= done_step);
    if (name.kind == Name::Kind::trash) fs::remove_all(checkpoints / text, ignored);
    if (name.kind == Name::Kind::temporary && dead) discard(checkpoints, checkpoints / text, name.step);
  }
}

fs::path free_replaced_path(const fs::path& checkpoints, std::int64_t step) {
  for (int serial = 1;; ++serial) {
    fs::path path = checkpoints / print_name({Name::Kind::replaced, step, {}, serial});
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) continue;
    if (errno != ENOENT) throw system_error("cannot look at " + path.string(), errno);
    return path;
  }
}

int next_attempt(const fs::path& checkpoints, std::optional<int> recorded) {
  int highest = recorded.value_or(0);
  for (const std::string& text : entries_of(checkpoints))
    if (const Name name = parse_name(text); name.kind == Name::Kind::temporary)
      highest = std::max(highest, name.generation.attempt);
  if (const auto newest = recorded ? std::nullopt : newest_sound(checkpoints))
    highest = std::max(highest, newest->manifest.generation.attempt);
  return highest + 1;
}

}  // namespace holdfast::checkpoint
