#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "checkpoint/index/retention.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_lock.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/load.hpp"
#include "src/tools/cli/ckpt_change.hpp"
#include "src/tools/cli/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Name;
using checkpoint::Retention;

/// Modification time; 0 when the file is not there.
double changed_at(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
}

/// Takes the lock of a bare run for as long as the result lives. Throws when a run may be alive: whether a
/// job is, only SLURM knows, but a job that is over has written its result after it took the directory.
std::optional<files::Fd> refuse_live_run(const RunDir& run, bool force) {
  const double owned = changed_at(run.owner()), over = changed_at(run.result());
  if (owned > 0 && over < owned && !force)
    throw Error(Exit::usage, fmt::format("a job owns {}", run.path.string()),
                "there is an owner.json, and no result.json is newer",
                "Wait for its end (holdfast status); or --force if that job does not run any more?");
  if (!files::exists_or_fail(run.bare_lock())) return {};
  auto lock = lock_run(run);
  if (!lock)
    throw Error(Exit::usage, fmt::format("a run is alive in {}", run.path.string()), "it holds bare.lock",
                "Wait for its end?");
  return lock;
}

Retention retention_of(const PruneOrder& order, const std::optional<RunDir>& run) {
  Retention retention{config::Checkpoint().keep, config::Checkpoint().archive_h,
                      config::Checkpoint().keep_files};
  if (run && files::exists_or_fail(run->config()) && !(order.keep && order.archive_h)) {
    const auto settings = config::load(run->config()).config.checkpoint;
    retention = {settings.keep, settings.archive_h, settings.keep_files};
  }
  if (order.keep) retention.keep = retention.keep_files = *order.keep;
  if (order.archive_h) retention.archive_h = *order.archive_h;
  retention.files_in = order.files_in;
  if (run) retention.files_in.push_back(run->path);
  return retention;
}

fs::path folder_of_many(const fs::path& given) {
  const fs::path path = clean(given);
  const auto folder = folder_of(path);
  if (!folder)
    throw Error(Exit::usage, path.string() + " is a checkpoint, not a folder of them",
                "it has a manifest.json", "Name its folder or run directory?");
  return *folder;
}

std::vector<std::string> remains_in(const fs::path& checkpoints,
                                    const std::vector<checkpoint::Candidate>& there) {
  std::vector<std::string> names = checkpoint::outlived(checkpoints, there);
  for (const std::string& text : files::list_or_fail(checkpoints)) {
    const auto kind = checkpoint::parse_name(text).kind;
    if (kind == Name::Kind::trash || kind == Name::Kind::temporary) names.push_back(text);
  }
  return names;
}

}  // namespace

int ckpt_prune(const PruneOrder& order, std::ostream& out) {
  const fs::path folder = folder_of_many(order.path);
  const auto run = run_of(folder);
  const auto lock = run ? refuse_live_run(*run, order.force) : std::nullopt;
  const Retention retention = retention_of(order, run);
  const auto there = checkpoint::candidates(folder, std::max(retention.keep, retention.keep_files));
  const auto remains = remains_in(folder, there);
  const auto steps =
      order.dry_run ? checkpoint::removable(folder, retention, there) : checkpoint::retain(folder, retention);
  if (!order.dry_run) {
    constexpr int last = std::numeric_limits<int>::max();
    checkpoint::sweep(folder, {last, last});  // nobody is alive
    if (run && files::exists_or_fail(run->durable())) checkpoint::record_steps(run->durable(), 0, {}, steps);
  }
  const auto committed = static_cast<std::int64_t>(checkpoint::committed_steps(folder).size());
  const auto gone = static_cast<std::int64_t>(steps.size());
  const std::int64_t before = committed + (order.dry_run ? 0 : gone);
  if (order.json) {
    const nlohmann::ordered_json report = {{"schema_version", 1},
                                           {"dry_run", order.dry_run},
                                           {"steps", steps},
                                           {"remains", remains},
                                           {"stay", before - gone},
                                           {"keep", retention.keep},
                                           {"keep_files", retention.keep_files},
                                           {"archive_h", retention.archive_h}};
    out << json_text(report, 2) << '\n';
    return static_cast<int>(Exit::done);
  }
  const char* const verb = order.dry_run ? "would remove" : "removed";
  for (const std::int64_t step : steps) out << fmt::format("{} step {}\n", verb, step);
  for (const std::string& name : remains) out << fmt::format("{} {}\n", verb, name);
  out << fmt::format("{} of {} checkpoints {} (keep {}, of other programs' files {}, archive every {} h)\n",
                     before - gone, before, order.dry_run ? "would stay" : "stay", retention.keep,
                     retention.keep_files > 0 ? std::to_string(retention.keep_files) : "all",
                     retention.archive_h);
  return static_cast<int>(Exit::done);
}

int ckpt_pin(const fs::path& given, std::optional<std::int64_t> step, bool unpin, std::ostream& out) {
  const fs::path path = clean(given);
  const auto folder = folder_of(path);
  if (!folder && step)
    throw Error(Exit::usage, path.string() + " is one checkpoint already", "--step was given as well",
                "Leave --step out?");
  const fs::path step_dir = folder && step ? checkpoint::committed_path(*folder, *step) : checkpoint_of(path);
  const Name name = checkpoint::parse_name(fs::absolute(step_dir).filename().string());
  if (name.kind != Name::Kind::committed)
    throw Error(Exit::usage, step_dir.string() + " cannot be pinned", "it is not named step-…",
                "Name a checkpoint as its run has named it?");
  const fs::path checkpoints = fs::absolute(step_dir).parent_path();
  const bool changed =
      unpin ? checkpoint::unpin(checkpoints, name.step) : checkpoint::pin(checkpoints, name.step);
  out << fmt::format("step {} {} {}pinned\n", name.step, changed ? "is" : "already was", unpin ? "not " : "");
  return static_cast<int>(Exit::done);
}

}  // namespace holdfast::tool
