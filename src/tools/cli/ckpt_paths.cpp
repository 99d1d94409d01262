#include "src/tools/cli/ckpt_paths.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/patience.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"
#include "src/config/load.hpp"
#include "src/control/private_place.hpp"
#include "src/snapshot/seal.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/progress.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Name;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// `read`, again for a moment where it meets a step that is just replaced by a newer one of its name, or
/// removed.
template <class Read>
auto while_it_changes(Read read) {
  const checkpoint::Patience patience{Millis(2000)};
  for (checkpoint::Retries retries(patience);;) try {
      return read();
    } catch (const checkpoint::Unreadable& why) {
      if (retries.over()) throw;
      retries.pause(why);
    }
}

/// checkpoint.local of the run, or where it is by default.
fs::path local_of(const RunDir& run) {
  std::string local = "auto";
  try {
    if (files::is_there(run.config())) local = config::load(run.config()).config.checkpoint.local;
  } catch (const Error&) {  // of another version: where it is by default, then
  }
  return local == "none" ? fs::path() : fs::path(local);
}

std::optional<fs::path> find_place(const control::PrivatePlace& place) try {
  return control::find_private(place, control::read_secret(place.run.secret()));
} catch (const Error&) {  // there is no secret, or it is not this user's to read
  return std::nullopt;
}

}  // namespace

fs::path clean(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

std::optional<fs::path> folder_of(const fs::path& path) {
  if (!is_folder(path))
    throw Error(Exit::usage, path.string() + " is not a checkpoint or a run directory",
                "there is no such folder", "'holdfast ls' lists runs");
  if (is_folder(RunDir{path}.checkpoints())) return RunDir{path}.checkpoints();
  const bool looks_like_one = checkpoint::parse_name(path.filename().string()).kind != Name::Kind::other;
  if (looks_like_one || files::is_there(path / checkpoint::manifest_file_name)) return {};
  if (!checkpoint::committed_steps(path).empty()) return path;
  throw Error(Exit::usage, path.string() + " holds no checkpoints", "no step-… folder in it",
              "Name a run directory, a folder of checkpoints or a checkpoint?");
}

fs::path checkpoint_of(const fs::path& given) {
  const fs::path path = clean(given);
  const auto folder = folder_of(path);
  if (!folder) return path;
  std::vector<std::string> passed_over;
  const auto newest = while_it_changes([&] {
    passed_over.clear();
    return checkpoint::newest_sound_folder(*folder, &passed_over);
  });
  for (const auto& why : passed_over) log::warn("an older checkpoint is taken: {}", why);
  if (!newest)
    throw Error(Exit::runtime, "no sound checkpoint in " + folder->string(), "",
                "'holdfast ckpt verify' says what is wrong with them");
  return *newest;
}

checkpoint::LeasedCheckpoint open_checkpoint(const fs::path& given) {
  const fs::path path = clean(given);
  const auto folder = folder_of(path);
  if (!folder) return checkpoint::lease_checkpoint(path);
  auto newest = while_it_changes([&] { return checkpoint::lease_newest(*folder); });
  if (!newest)
    throw Error(Exit::runtime, "no sound checkpoint in " + folder->string(), "",
                "'holdfast ckpt verify' says what is wrong with them");
  return std::move(*newest);
}

std::optional<RunDir> run_of(const fs::path& checkpoints) {
  const fs::path whole = fs::absolute(checkpoints).lexically_normal();
  const RunDir run{whole.parent_path()};
  if (run.checkpoints() != whole) return {};
  return run;
}

std::optional<LocalFolder> local_folder_of(const RunDir& run) {
  const fs::path local = local_of(run);
  if (local.empty()) return {};
  const auto place = find_place(control::local_level_place(run, local));
  if (!place) return {};
  LocalFolder folder{*place, {}};
  for (const std::string& name : files::list_or_fail(folder.path)) {
    const auto whose = snapshot::folder_called(name);
    auto outline = whose ? checkpoint::outline_of(folder.path / name) : std::nullopt;
    if (outline) folder.files.push_back({name, whose->first, whose->second, std::move(*outline)});
  }
  std::ranges::sort(folder.files, {}, [](const LocalCopy& of) { return std::pair(of.rank, of.copy); });
  return folder;
}

std::string rate_text(std::int64_t bytes, Clock::time_point begin) {
  const double seconds = std::max(1e-6, std::chrono::duration<double>(Clock::now() - begin).count());
  return fmt::format("{} in {} ({}/s)", size_text(bytes), duration_text(seconds),
                     size_text(static_cast<double>(bytes) / seconds));
}

std::string committed_at(const fs::path& step_dir) try {
  const auto record = checkpoint::read_commit_record(step_dir);
  return record ? utc_iso8601(static_cast<double>(record->committed)).substr(0, 19) + "Z" : "";
} catch (const Error&) {
  return "";
}

std::function<void(std::int64_t, std::int64_t)> bar(std::string what) {
  const auto progress = std::make_shared<Progress>();
  return [progress, what = std::move(what), begin = Clock::now()](std::int64_t done, std::int64_t total) {
    stop_if_interrupted();
    progress->show([&] {
      constexpr int width = 30;
      const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      const auto filled = as_size(std::clamp(part, 0.0, 1.0) * width);
      return fmt::format("{} [{}{}] {} of {}, {}/s", what, std::string(filled, '#'),
                         std::string(width - filled, '.'), size_text(done), size_text(total),
                         size_text(static_cast<double>(done) / seconds));
    });
    if (done >= total) progress->clear();
  };
}

}  // namespace holdfast::tool
