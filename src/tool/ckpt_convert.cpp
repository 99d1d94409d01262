#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "checkpoint/export.hpp"
#include "checkpoint/import.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/config/hf_config.hpp"
#include "src/config/load.hpp"
#include "src/tool/ckpt_change.hpp"
#include "src/tool/ckpt_folder.hpp"
#include "src/tool/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Element;
using checkpoint::Manifest;

std::string rate_text(std::int64_t bytes, Clock::time_point begin) {
  const double seconds = std::max(1e-6, std::chrono::duration<double>(Clock::now() - begin).count());
  return fmt::format("{} in {:.1f} s ({:.0f} MB/s)", size_text(bytes), seconds,
                     static_cast<double>(bytes) / 1e6 / seconds);
}

int copy(const fs::path& step_dir, const Manifest& manifest, const checkpoint::WholeFile& file,
         const fs::path& target, const std::string& what, std::ostream& out) {
  const auto begin = Clock::now();
  checkpoint::write_whole_file(step_dir, manifest, file, target, bar(what));
  out << fmt::format("{}: step {}, {} tensors, {}\n", target.string(), manifest.point.step,
                     file.tensors.size(), rate_text(file.bytes, begin));
  return static_cast<int>(Exit::done);
}

std::optional<Element> element_of(const std::string& dtype) {
  if (dtype.empty()) return {};
  return dtype == "fp32" ? Element::f32 : dtype == "bf16" ? Element::bf16 : Element::f16;
}

/// --model, or the config.json in the folder of the weights.
std::string model_for(const ImportFiles& files) {
  if (!files.model.empty()) return files.model;
  std::error_code ignored;
  const fs::path source = clean(files.source);
  const fs::path folder = fs::is_directory(source, ignored) ? source : fs::absolute(source).parent_path();
  if (const auto config = config::find_hf_config(folder)) return fs::absolute(*config).string();
  throw Error(Exit::usage, "nothing says which model these weights are of",
              "there is no config.json in " + folder.string(), "Name it with --model?");
}

checkpoint::ImportOrder order_of(const ImportFiles& files) {
  const config::ModelShape shape = config::load_model(model_for(files));
  checkpoint::ImportOrder order;
  order.source = files.source, order.checkpoints = clean(files.out);
  for (const config::TensorSpec& spec : config::tensors_of(shape))
    order.model.push_back({spec.name, spec.rows, spec.cols, DType::fp32});
  order.tied = shape.tied_embeddings;
  order.moments = files.bf16_moments ? DType::bf16 : DType::fp32;
  order.facts.model_toml = config::to_toml(shape);
  order.facts.numerics = checkpoint::imported_numerics;
  order.facts.strategy = order.facts.config_hash = "imported";
  return order;
}

}  // namespace

int ckpt_export(const ExportOrder& order, std::ostream& out) {
  const fs::path step_dir = checkpoint_of(order.path), target = clean(order.out);
  if (target.empty())
    throw Error(Exit::usage, "ckpt export does not know what to write", "",
                "Name a folder, or a file that ends in .safetensors?");
  const Manifest manifest = checkpoint::read_manifest(step_dir);
  const auto type = element_of(order.dtype);
  const bool single = order.single || order.polyglot || target.extension() == ".safetensors";
  if (single && !order.tokenizer.empty())
    throw Error(Exit::usage, "a tokenizer goes into a folder", target.string() + " would be one file",
                "Name a folder?");
  if (order.polyglot) {
    if (type == Element::f16)
      throw Error(Exit::usage, "a polyglot file holds fp32 or bf16", "--dtype is fp16");
    const DType either = type == Element::bf16 ? DType::bf16 : DType::fp32;
    return copy(step_dir, manifest, checkpoint::plan_polyglot(manifest, either), target, "export", out);
  }
  const auto types = checkpoint::types_of_model(manifest, type);
  if (single)
    return copy(step_dir, manifest, checkpoint::plan_model_files(manifest, types, INT64_MAX).front().file,
                target, "export", out);
  const auto begin = Clock::now();
  const ExportedFolder folder =
      export_folder(step_dir, manifest, types, target, {order.shard_bytes, clean(order.tokenizer)});
  out << fmt::format("{}: step {}, {} tensors as {} in {} files, {}\n", target.string(), manifest.point.step,
                     types.size(), folder.dtype, folder.files, rate_text(folder.bytes, begin));
  return static_cast<int>(Exit::done);
}

int ckpt_consolidate(const fs::path& path, const fs::path& target, std::ostream& out) {
  const fs::path step_dir = checkpoint_of(path);
  const Manifest manifest = checkpoint::read_manifest(step_dir);
  return copy(step_dir, manifest, checkpoint::plan_consolidated(manifest), target, "consolidate", out);
}

int ckpt_import(const ImportFiles& files, std::ostream& out) {
  const auto begin = Clock::now();
  const checkpoint::Imported imported = checkpoint::import_safetensors(order_of(files), bar("import"));
  for (const std::string& name : imported.skipped) out << fmt::format("not needed: {}\n", harmless(name));
  out << fmt::format("{}: {}\nStart from it with --set run.resume={}\n", imported.path.string(),
                     rate_text(imported.bytes, begin),
                     fs::absolute(imported.path).lexically_normal().string());
  return static_cast<int>(Exit::done);
}

}  // namespace holdfast::tool
