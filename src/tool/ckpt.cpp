#include "src/tool/ckpt.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/catalog.hpp"
#include "checkpoint/verify.hpp"
#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/base/run_dir.hpp"
#include "src/tool/progress.hpp"

namespace holdfast::tool {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;
using checkpoint::Name;
using Json = nlohmann::ordered_json;

int exit_of(Exit exit) { return static_cast<int>(exit); }

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// A path as a user types it, without a trailing slash.
fs::path clean(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

/// The checkpoints folder that `path` is or has, or nothing when it is a checkpoint itself.
std::optional<fs::path> folder_of(const fs::path& path) {
  if (!is_folder(path))
    throw Error(Exit::usage, path.string() + " is not a checkpoint or a run directory",
                "there is no such folder");
  if (is_folder(RunDir{path}.checkpoints())) return RunDir{path}.checkpoints();
  const bool looks_like_one = checkpoint::parse_name(path.filename().string()).kind != Name::Kind::other;
  if (looks_like_one || fs::exists(path / checkpoint::manifest_file_name)) return {};
  if (!checkpoint::committed_steps(path).empty()) return path;
  throw Error(Exit::usage, path.string() + " holds no checkpoints", "no step-… folder in it");
}

std::string size_text(std::int64_t bytes) {
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

std::string written_at(const fs::path& step_dir) {
  struct stat info {};
  if (::stat((step_dir / checkpoint::manifest_file_name).c_str(), &info) != 0) return "";
  return utc_iso8601(static_cast<double>(info.st_mtim.tv_sec)).substr(0, 19) + "Z";
}

/// Text of a manifest on a terminal: one line, nothing that steers it.
std::string harmless(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

std::string generation_text(const checkpoint::Generation& generation) {
  return fmt::format("{}-{}", generation.epoch, generation.attempt);
}

Json json_of(const fs::path& path, const Manifest& m) {
  return {{"path", path.string()},
          {"step", m.point.step},
          {"tokens", m.point.tokens},
          {"samples", m.point.samples},
          {"written", written_at(path)},
          {"generation", {{"epoch", m.generation.epoch}, {"attempt", m.generation.attempt}}},
          {"bytes", total_bytes(m)},
          {"state_digest", checkpoint::digest_text(m.state_digest)}};
}

void print_json(const Json& json, std::ostream& out) {
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

void print_text(const fs::path& path, const Manifest& m, std::ostream& out) {
  out << fmt::format(
      "checkpoint    {}\nstep          {}\ntokens        {}\nsamples       {}\nwritten       {}\n"
      "generation    {}\n",
      path.string(), m.point.step, m.point.tokens, m.point.samples, written_at(path),
      generation_text(m.generation));
  out << fmt::format(
      "world         {}\nstrategy      {}\nnumerics      {}\ndata          {}\nseed          {}\n"
      "config        {}\n",
      m.facts.world, harmless(m.facts.strategy), harmless(m.facts.numerics), harmless(m.facts.data_identity),
      m.facts.seed, harmless(m.facts.config_hash));
  out << fmt::format("shards        {} files, {}\nstate digest  {}\n\n", m.shards.size(),
                     size_text(total_bytes(m)), checkpoint::digest_text(m.state_digest));
  std::size_t width = 6;
  for (const auto& tensor : m.tensors) width = std::max(width, tensor.name.size());
  out << fmt::format("{:{}}  {:>17}  type  digest\n", "tensor", width, "shape");
  for (std::size_t i = 0; i < m.tensors.size(); ++i) {
    const auto& tensor = m.tensors[i];
    out << fmt::format("{:{}}  {:>17}  f32   {}\n", tensor.name, width,
                       fmt::format("{} x {}", tensor.rows, tensor.cols),
                       checkpoint::digest_text(m.digests[i]));
  }
}

Json json_in_full(const fs::path& path, const Manifest& m) {
  Json json = json_of(path, m);
  json["facts"] = {{"model_toml", m.facts.model_toml},       {"world", m.facts.world},
                   {"strategy", m.facts.strategy},           {"numerics", m.facts.numerics},
                   {"data_identity", m.facts.data_identity}, {"seed", m.facts.seed},
                   {"config_hash", m.facts.config_hash}};
  for (std::size_t i = 0; i < m.tensors.size(); ++i)
    json["tensors"].push_back({{"name", m.tensors[i].name},
                               {"shape", {m.tensors[i].rows, m.tensors[i].cols}},
                               {"dtype", "f32"},
                               {"digest", checkpoint::digest_text(m.digests[i])}});
  for (const auto& shard : m.shards)
    json["shards"].push_back({{"file", shard.file},
                              {"bytes", shard.bytes},
                              {"pieces", shard.pieces.size()},
                              {"blocks", shard.block_crc32c.size()},
                              {"root", shard.root}});
  return json;
}

}  // namespace

int ckpt_ls(const fs::path& given, bool json, std::ostream& out) {
  const fs::path path = clean(given);
  const auto folder = folder_of(path);
  if (!folder)
    throw Error(Exit::usage, path.string() + " is a checkpoint, not a folder of them", "", "Use ckpt show?");
  Json list = Json::array();
  if (!json)
    out << fmt::format("{:>10}  {:>14}  {:>10}  {:>6}  {:20}  {:16}\n", "step", "tokens", "size", "shards",
                       "written", "state digest");
  for (const std::int64_t step : checkpoint::committed_steps(*folder)) {
    const fs::path step_dir = checkpoint::committed_path(*folder, step);
    const auto why = checkpoint::why_unsound(step_dir);
    if (why && json) list.push_back({{"path", step_dir.string()}, {"step", step}, {"damaged", *why}});
    if (why && !json) out << fmt::format("{:>10}  damaged: {}\n", step, harmless(*why));
    if (why) continue;
    const Manifest m = checkpoint::read_manifest(step_dir);
    if (json)
      list.push_back(json_of(step_dir, m));
    else
      out << fmt::format("{:>10}  {:>14}  {:>10}  {:>6}  {:20}  {}\n", step, m.point.tokens,
                         size_text(total_bytes(m)), m.shards.size(), written_at(step_dir),
                         checkpoint::digest_text(m.state_digest));
  }
  if (json) print_json({{"schema_version", 1}, {"checkpoints", list}}, out);
  return exit_of(Exit::done);
}

int ckpt_show(const fs::path& given, bool json, std::ostream& out) {
  fs::path path = clean(given);
  if (const auto folder = folder_of(path)) {
    const auto newest = checkpoint::newest_sound(*folder);
    if (!newest) throw Error(Exit::runtime, "no sound checkpoint in " + folder->string());
    path = newest->path;
  }
  const Manifest manifest = checkpoint::read_manifest(path);
  if (!json) {
    print_text(path, manifest, out);
    return exit_of(Exit::done);
  }
  Json all = {{"schema_version", 1}};
  all.update(json_in_full(path, manifest));
  print_json(all, out);
  return exit_of(Exit::done);
}

int ckpt_verify(const fs::path& given, std::ostream& out) {
  const fs::path path = clean(given);
  std::vector<fs::path> paths;
  if (const auto folder = folder_of(path))
    for (const std::int64_t step : checkpoint::committed_steps(*folder))
      paths.push_back(checkpoint::committed_path(*folder, step));
  else
    paths.push_back(path);
  bool good = true;
  for (const fs::path& step_dir : paths) {
    Progress progress;
    const checkpoint::Verified result =
        checkpoint::verify(step_dir, [&](std::int64_t done, std::int64_t total) {
          progress.show([&] {
            return fmt::format("verify {}: {} of {}", step_dir.filename().string(), size_text(done),
                               size_text(total));
          });
        });
    progress.clear();
    good &= result.problems.empty();
    if (result.problems.empty())
      out << fmt::format("{}: good ({}, {} blocks)\n", step_dir.string(), size_text(result.bytes),
                         result.blocks);
    else
      out << fmt::format("{}: DAMAGED\n", step_dir.string());
    for (const std::string& problem : result.problems) out << "  " << harmless(problem) << '\n';
  }
  return exit_of(good ? Exit::done : Exit::runtime);
}

}  // namespace holdfast::tool
