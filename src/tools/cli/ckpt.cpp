// Each verb has three steps: what the path means (folder_of(), checkpoint_of()), what is known of the
// checkpoints, and that as text or JSON. Functions that print come in pairs, for a Manifest and for a
// FilesManifest. `diff` has a file of its own.
//
// - ls asks for the condition of each checkpoint, which reads its manifest and the sizes of its files; a
//   damaged one is a line among the others.
// - show reads one manifest; for one of the trainer it also looks in the local level of this machine.
// - verify reads every byte, under a Lease, so that a run that is alive does not remove what is being read.
//   One that retention took before is passed over. The newest of a folder may just be written again: if it
//   cannot be read, verify() waits up to 10 s for that, and reads once more.
#include "src/tools/cli/ckpt.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/verify/verify.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/printable.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/units.hpp"
#include "src/tools/cli/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::FilesManifest;
using checkpoint::Manifest;
using Json = nlohmann::ordered_json;

int exit_of(Exit exit) { return static_cast<int>(exit); }

std::string generation_text(const checkpoint::Generation& generation) {
  return fmt::format("{}-{}", generation.term, generation.attempt);
}

bool is_pinned(const fs::path& step_dir, std::int64_t step) {
  return files::exists_or_fail(checkpoint::pin_path(step_dir.parent_path(), step));
}

bool is_best(const fs::path& step_dir, std::int64_t step) {
  return files::exists_or_fail(checkpoint::best_path(step_dir.parent_path(), step));
}

/// "  best  pinned"
std::string marks_of(const fs::path& step_dir, std::int64_t step) {
  return std::string(is_best(step_dir, step) ? "  best" : "") + (is_pinned(step_dir, step) ? "  pinned" : "");
}

/// Ranks whose state of `step` lies sealed on this machine.
struct LocalHold {
  fs::path folder;
  std::set<int> ranks;
  int world = 0;
};
std::optional<LocalHold> local_hold_of(const fs::path& step_dir, std::int64_t step) {
  const auto run = run_of(step_dir.parent_path());
  const auto local = run ? local_folder_of(*run) : std::nullopt;
  if (!local) return {};
  LocalHold hold{local->path, {}, 0};
  for (const LocalCopy& copy : local->files)
    for (const auto& sealed : copy.outline.buffers)
      if (sealed && sealed->point.step == step) {
        hold.ranks.insert(copy.rank);
        hold.world = copy.world();
      }
  if (hold.ranks.empty()) return {};
  return hold;
}

Json levels_json(const fs::path& path, const Manifest& m) {
  Json levels = {{"shared", path.string()}};
  if (const auto local = local_hold_of(path, m.point.step))
    levels["local"] = {{"folder", local->folder.string()}, {"ranks", local->ranks}, {"world", local->world}};
  return levels;
}

std::string levels_text(const fs::path& path, const Manifest& m) {
  std::string text = "shared";
  if (const auto local = local_hold_of(path, m.point.step))
    text += fmt::format(", local here ({} of {} ranks)", local->ranks.size(), local->world);
  return text;
}

Json local_json(const LocalFolder& local) {
  Json files = Json::array();
  for (const LocalCopy& copy : local.files) {
    Json buffers = Json::array();
    for (const auto& sealed : copy.outline.buffers) {
      Json buffer = {{"sealed", sealed.has_value()}};
      if (sealed) buffer["step"] = sealed->point.step, buffer["tokens"] = sealed->point.tokens;
      buffers.push_back(buffer);
    }
    files.push_back({{"file", copy.folder},
                     {"rank", copy.rank},
                     {"world", copy.world()},
                     {"kind", copy.copy ? "copy" : "own"},
                     {"buffer_bytes", copy.outline.buffer_bytes},
                     {"buffers", buffers}});
  }
  return {{"folder", local.path.string()}, {"files", files}};
}

void print_local(const LocalFolder& local, std::ostream& out) {
  out << fmt::format("\nlocal level of this machine: {}\n{:>6}  {:>4}  {:>10}  sealed steps\n",
                     local.path.string(), "rank", "kind", "buffer");
  for (const LocalCopy& copy : local.files) {
    std::set<std::int64_t> steps;
    for (const auto& sealed : copy.outline.buffers)
      if (sealed) steps.insert(sealed->point.step);
    out << fmt::format("{:>6}  {:>4}  {:>10}  {}\n", copy.rank, copy.copy ? "copy" : "own",
                       size_text(copy.outline.buffer_bytes),
                       steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", ")));
  }
}

std::string committed_text(const fs::path& step_dir) {
  const std::string time = committed_at(step_dir);
  return time.empty() ? "unknown" : time;
}

Json json_of(const fs::path& path, const Manifest& m) {
  const std::string committed = committed_at(path);
  return {{"path", path.string()},
          {"kind", "tensors"},
          {"step", m.point.step},
          {"tokens", m.point.tokens},
          {"samples", m.point.samples},
          {"committed", committed.empty() ? Json() : Json(committed)},
          {"pinned", is_pinned(path, m.point.step)},
          {"best", is_best(path, m.point.step)},
          {"generation", {{"term", m.generation.term}, {"attempt", m.generation.attempt}}},
          {"bytes", total_bytes(m)},
          {"state_digest", checkpoint::digest_text(m.state_digest)}};
}

Json json_of(const fs::path& path, const FilesManifest& m) {
  const std::string committed = committed_at(path);
  return {{"path", path.string()},
          {"kind", "files"},
          {"step", m.step},
          {"committed", committed.empty() ? Json() : Json(committed)},
          {"pinned", is_pinned(path, m.step)},
          {"generation", {{"term", m.generation.term}, {"attempt", m.generation.attempt}}},
          {"bytes", total_bytes(m)},
          {"world", m.world},
          {"folder", m.folder},
          {"file_count", m.files.size()}};
}

void print_text(const fs::path& path, const FilesManifest& m, std::ostream& out) {
  out << fmt::format(
      "checkpoint    {}\nkind          files of another program\nstep          {}\ncommitted     {}\n"
      "generation    {}\nformat        {}{}\nworld         {}\nfolder        {}\nfiles         {}, {}\n\n",
      path.string(), m.step, committed_text(path), generation_text(m.generation), checkpoint::files_version,
      is_pinned(path, m.step) ? "\npinned        yes" : "", m.world, printable_line(m.folder), m.files.size(),
      size_text(total_bytes(m)));
  std::size_t width = 4;
  for (const auto& file : m.files) width = std::max(width, file.name.size());
  out << fmt::format("{:{}}  {:>10}  {:>6}  digest\n", "file", width, "size", "rank");
  for (const auto& file : m.files)
    out << fmt::format("{:{}}  {:>10}  {:>6}  {}\n", printable_line(file.name), width, size_text(file.bytes),
                       file.rank, file.digest);
}

Json json_in_full(const fs::path& path, const FilesManifest& m) {
  Json json = json_of(path, m);
  json["format"] = checkpoint::files_version;
  json["files"] = Json::array();
  for (const auto& file : m.files)
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}, {"rank", file.rank}});
  return json;
}

void print_json(const Json& json, std::ostream& out) { out << json_text(json, 2) << '\n'; }

void print_text(const fs::path& path, const Manifest& m, std::ostream& out) {
  out << fmt::format(
      "checkpoint    {}\nstep          {}\ntokens        {}\nsamples       {}\ncommitted     {}\n"
      "generation    {}\nformat        {}\nlevels        {}{}\n",
      path.string(), m.point.step, m.point.tokens, m.point.samples, committed_text(path),
      generation_text(m.generation), m.version, levels_text(path, m),
      std::string(is_best(path, m.point.step) ? "\nbest          yes" : "") +
          (is_pinned(path, m.point.step) ? "\npinned        yes" : ""));
  out << fmt::format(
      "world         {}\nstrategy      {}\nnumerics      {}\ndata          {}\nseed          {}\n"
      "config        {}\n",
      m.facts.world, printable_line(m.facts.strategy), printable_line(m.facts.numerics),
      printable_line(m.facts.data_identity), m.facts.seed, printable_line(m.facts.config_hash));
  out << fmt::format("shards        {} files, {}\nstate digest  {}\n\n", m.shards.size(),
                     size_text(total_bytes(m)), checkpoint::digest_text(m.state_digest));
  std::size_t width = 6;
  for (const auto& tensor : m.tensors) width = std::max(width, tensor.name.size());
  out << fmt::format("{:{}}  {:>17}  type  digest\n", "tensor", width, "shape");
  for (std::size_t i = 0; i < m.tensors.size(); ++i) {
    const auto& tensor = m.tensors[i];
    out << fmt::format("{:{}}  {:>17}  {:4}  {}\n", tensor.name, width,
                       fmt::format("{} x {}", tensor.rows, tensor.cols), name_of(tensor.type),
                       checkpoint::digest_text(m.digests[i]));
  }
}

Json json_in_full(const fs::path& path, const Manifest& m) {
  Json json = json_of(path, m);
  json["format"] = m.version;
  json["levels"] = levels_json(path, m);
  json["facts"] = {{"model_toml", m.facts.model_toml},       {"world", m.facts.world},
                   {"strategy", m.facts.strategy},           {"numerics", m.facts.numerics},
                   {"data_identity", m.facts.data_identity}, {"seed", m.facts.seed},
                   {"config_hash", m.facts.config_hash}};
  for (std::size_t i = 0; i < m.tensors.size(); ++i)
    json["tensors"].push_back({{"name", m.tensors[i].name},
                               {"shape", {m.tensors[i].rows, m.tensors[i].cols}},
                               {"dtype", name_of(m.tensors[i].type)},
                               {"digest", checkpoint::digest_text(m.digests[i])}});
  for (std::size_t rank = 0; rank < m.shards.size(); ++rank) {
    const auto& shard = m.shards[rank];
    json["shards"].push_back({{"file", shard.file},
                              {"bytes", shard.bytes},
                              {"pieces", checkpoint::pieces_of(m, rank).size()},
                              {"blocks", checkpoint::blocks_of(shard).count()},
                              {"root", shard.root}});
  }
  return json;
}

const char* word_of(const checkpoint::Verified& result) {
  return result.problems.empty() ? "good" : result.unreadable ? "unreadable" : "damaged";
}

Json verdict_json(const fs::path& step_dir, const checkpoint::Verified& result) {
  return {{"path", step_dir.string()}, {"verdict", word_of(result)}, {"bytes", result.bytes},
          {"blocks", result.blocks},   {"files", result.files},      {"problems", result.problems},
          {"remarks", result.remarks}};
}

/// Of a run that saves its newest step again (after a resume, for one) that step is whole a little later.
checkpoint::Verified verify(const fs::path& step_dir, bool newest_of_run) {
  constexpr Millis patience{10000}, pause{100};
  const auto read = [&] {
    return checkpoint::verify(step_dir, bar("verify " + step_dir.filename().string()));
  };
  checkpoint::Verified result = read();
  if (!result.unreadable || !newest_of_run) return result;
  for (const Deadline over = Deadline::in(patience); !over.passed(); std::this_thread::sleep_for(pause))
    if (checkpoint::condition_of(step_dir).kind != checkpoint::Condition::Kind::unknown) return read();
  return result;
}

void print_verdict(const fs::path& step_dir, const checkpoint::Verified& result, std::ostream& out) {
  if (result.problems.empty())
    out << fmt::format("{}: good ({}, {} {})\n", step_dir.string(), size_text(result.bytes),
                       result.files > 0 ? result.files : result.blocks,
                       result.files > 0 ? "files" : "blocks");
  else
    out << fmt::format("{}: {}\n", step_dir.string(), result.unreadable ? "NOT READABLE" : "DAMAGED");
  for (const auto* list : {&result.problems, &result.remarks})
    for (const std::string& text : *list) out << "  " << printable_line(text) << '\n';
}

}  // namespace

int ckpt_ls(const fs::path& given, bool json, std::ostream& out) {
  const fs::path path = clean(given);
  const auto folder = folder_of(path);
  if (!folder)
    throw Error(Exit::usage, path.string() + " is a checkpoint, not a folder of them", "", "Use ckpt show?");
  Json list = Json::array();
  if (!json)
    out << fmt::format("{:>10}  {:>14}  {:>10}  {:>6}  {:20}  {:16}\n", "step", "tokens", "size", "files",
                       "committed", "state digest");
  for (const std::int64_t step : checkpoint::committed_steps(*folder)) {
    const fs::path step_dir = checkpoint::committed_path(*folder, step);
    const checkpoint::Condition found = checkpoint::condition_of(step_dir);
    if (found.files && found.written_again.empty()) {
      const FilesManifest& m = *found.files;
      if (json)
        list.push_back(json_of(step_dir, m));
      else
        out << fmt::format("{:>10}  {:>14}  {:>10}  {:>6}  {:20}  files in {}{}\n", step, "",
                           size_text(total_bytes(m)), m.files.size(), committed_text(step_dir),
                           printable_line(m.folder), marks_of(step_dir, step));
      continue;
    }
    if (!found.manifest) {
      const char* const what = found.kind == checkpoint::Condition::Kind::damaged ? "damaged" : "unreadable";
      if (json)
        list.push_back({{"path", step_dir.string()}, {"step", step}, {what, found.why}});
      else
        out << fmt::format("{:>10}  {}: {}\n", step, what, printable_line(found.why));
      continue;
    }
    const Manifest& m = *found.manifest;
    if (json)
      list.push_back(json_of(step_dir, m));
    else
      out << fmt::format("{:>10}  {:>14}  {:>10}  {:>6}  {:20}  {}{}\n", step, m.point.tokens,
                         size_text(total_bytes(m)), m.shards.size(), committed_text(step_dir),
                         checkpoint::digest_text(m.state_digest), marks_of(step_dir, step));
  }
  const auto run = run_of(*folder);
  const auto local = run ? local_folder_of(*run) : std::nullopt;
  if (local && !json) print_local(*local, out);
  if (!json) return exit_of(Exit::done);
  Json all = {{"schema_version", 1}, {"checkpoints", list}};
  if (local) all["local"] = local_json(*local);
  print_json(all, out);
  return exit_of(Exit::done);
}

int ckpt_show(const fs::path& given, bool json, std::ostream& out) {
  const fs::path path = checkpoint_of(given);
  const auto show = [&](const auto& manifest) {
    if (!json) return print_text(path, manifest, out);
    Json all = {{"schema_version", 2}};
    all.update(json_in_full(path, manifest));
    print_json(all, out);
  };
  const std::string text = checkpoint::read_manifest_text(path);
  if (checkpoint::lists_files(text))
    show(checkpoint::parse_files_manifest_of(path, text));
  else
    show(checkpoint::parse_manifest_of(path, text));
  return exit_of(Exit::done);
}

int ckpt_verify(const fs::path& given, bool json, std::ostream& out) {
  const fs::path path = clean(given);
  std::vector<fs::path> paths;
  const auto folder = folder_of(path);
  if (folder)
    for (const std::int64_t step : checkpoint::committed_steps(*folder))
      paths.push_back(checkpoint::committed_path(*folder, step));
  else
    paths.push_back(path);
  bool good = true;
  Json list = Json::array();
  for (const fs::path& step_dir : paths) {
    const checkpoint::Lease lease(step_dir);
    const checkpoint::Verified result = verify(step_dir, folder && step_dir == paths.front());
    if (folder && result.unreadable && !files::is_there(step_dir)) continue;  // retention has taken it
    good &= result.problems.empty();
    if (json)
      list.push_back(verdict_json(step_dir, result));
    else
      print_verdict(step_dir, result, out);
  }
  if (json) print_json({{"schema_version", 1}, {"good", good}, {"checkpoints", list}}, out);
  return exit_of(good ? Exit::done : Exit::runtime);
}

}  // namespace holdfast::tool
