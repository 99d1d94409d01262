#include "checkpoint/catalog.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

/// Reads a decimal number off the front of `text`.
template <class Number>
bool take_number(std::string_view& text, Number& number) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
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

std::optional<std::string> wrong_size(const fs::path& path, std::int64_t bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return path.filename().string() +
           (errno == ENOENT
                ? " is missing"
                : " cannot be looked at: " + std::error_code(errno, std::generic_category()).message());
  if (!S_ISREG(info.st_mode) || info.st_size != bytes)
    return path.filename().string() + " has " + std::to_string(info.st_size) + " bytes, not " +
           std::to_string(bytes);
  return {};
}

std::optional<std::string> wrong_files(const fs::path& step_dir, const Manifest& manifest) {
  for (const ShardInfo& shard : manifest.shards)
    if (auto why = wrong_size(step_dir / shard.file, shard.bytes)) return why;
  return {};
}

/// A sound manifest of `step`, or why there is none.
std::optional<Manifest> sound_manifest(const fs::path& step_dir, std::int64_t step, std::string& why) {
  try {
    Manifest manifest = read_manifest(step_dir);
    if (step >= 0 && manifest.point.step != step) {
      why = step_dir.string() + " holds step " + std::to_string(manifest.point.step);
      return {};
    }
    const auto wrong = wrong_files(step_dir, manifest);
    if (!wrong) return manifest;
    why = "checkpoint " + step_dir.string() + " is damaged (" + *wrong + ")";
  } catch (const Error& e) {
    why = e.what();
  }
  return {};
}

}  // namespace

Name parse_name(std::string_view text) {
  const std::string_view whole = text;
  Name name;
  if (take(text, "step-") && take_number(text, name.step)) {
    if (text.empty()) name.kind = Name::Kind::committed;
    if (take(text, ".tmp-") && take_number(text, name.generation.epoch) && take(text, "-") &&
        take_number(text, name.generation.attempt) && text.empty())
      name.kind = Name::Kind::temporary;
    if (text == ".pin") name.kind = Name::Kind::pin;
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
      return "step-" + number + ".tmp-" + std::to_string(name.generation.epoch) + "-" +
             std::to_string(name.generation.attempt);
    case Name::Kind::trash:
      return ".trash-" + number + "-" + std::to_string(name.serial);
    case Name::Kind::pin:
      return "step-" + number + ".pin";
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

std::string shard_file_name(int rank) { return "shard-" + padded("%05lld", rank) + ".h5"; }

std::vector<std::int64_t> committed_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const std::string& text : files::list(checkpoints))
    if (const Name name = parse_name(text); name.kind == Name::Kind::committed) steps.push_back(name.step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::optional<std::string> why_unsound(const fs::path& step_dir) {
  std::string why;
  if (sound_manifest(step_dir, -1, why)) return {};
  return why;
}

bool sound_as(const fs::path& step_dir, std::int64_t step) {
  std::string why;
  return sound_manifest(step_dir, step, why).has_value();
}

std::optional<Found> newest_sound(const fs::path& checkpoints, std::int64_t before_step,
                                  std::vector<std::string>* notes) {
  for (const std::int64_t step : committed_steps(checkpoints)) {
    if (step >= before_step) continue;
    const fs::path path = committed_path(checkpoints, step);
    std::string why;
    if (auto manifest = sound_manifest(path, step, why)) return Found{step, path, std::move(*manifest)};
    if (notes) notes->push_back(why);
  }
  return {};
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
  for (const std::string& text : files::list(checkpoints)) {
    const Name name = parse_name(text);
    const bool dead = name.generation < alive || (name.generation == alive && name.step <= done_step);
    if (name.kind == Name::Kind::trash) fs::remove_all(checkpoints / text, ignored);
    if (name.kind == Name::Kind::temporary && dead) discard(checkpoints, checkpoints / text, name.step);
  }
}

int next_attempt(const fs::path& checkpoints) {
  int highest = 0;
  for (const std::string& text : files::list(checkpoints))
    if (const Name name = parse_name(text); name.kind == Name::Kind::temporary)
      highest = std::max(highest, name.generation.attempt);
  if (const auto newest = newest_sound(checkpoints))
    highest = std::max(highest, newest->manifest.generation.attempt);
  return highest + 1;
}

}  // namespace holdfast::checkpoint
