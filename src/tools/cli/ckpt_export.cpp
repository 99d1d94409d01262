#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "checkpoint/exchange/checkpoint_tensors.hpp"
#include "checkpoint/exchange/export.hpp"
#include "src/base/error.hpp"
#include "src/base/printable.hpp"
#include "src/config/load.hpp"
#include "src/tools/cli/ckpt_change.hpp"
#include "src/tools/cli/ckpt_folder.hpp"
#include "src/tools/cli/ckpt_paths.hpp"
#include "src/tools/cli/merged_model.hpp"
#include "src/tools/cli/run_settings.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Element;
using checkpoint::Manifest;

/// What is exported: a model, from wherever it comes.
struct Model {
  checkpoint::TensorSource& source;
  std::string description;
  std::vector<Element> types;  ///< one per tensor of the model
  FolderOptions folder = {};
};

std::optional<Element> element_of(const std::string& dtype) {
  if (dtype.empty()) return {};
  return dtype == "fp32" ? Element::f32 : dtype == "bf16" ? Element::bf16 : Element::f16;
}

bool is_one_file(const ExportOrder& order) {
  return order.single || order.polyglot || clean(order.out).extension() == ".safetensors";
}

void refuse_contradictions(const ExportOrder& order) {
  if (order.out.empty())
    throw Error(Exit::usage, "ckpt export does not know what to write", "",
                "Name a folder, or a file that ends in .safetensors?");
  if (is_one_file(order) && !order.tokenizer.empty())
    throw Error(Exit::usage, "a tokenizer goes into a folder", order.out.string() + " would be one file",
                "Name a folder?");
  if (order.polyglot && order.dtype == "fp16")
    throw Error(Exit::usage, "a polyglot file holds fp32 or bf16", "--dtype is fp16");
}

int write_file(const ExportOrder& order, const Model& model, std::ostream& out) {
  const auto begin = Clock::now();
  const auto tensors = model.source.tensors();
  const DType either = order.dtype == "bf16" ? DType::bf16 : DType::fp32;
  const checkpoint::NamedFile one[] = {{order.polyglot ? checkpoint::plan_polyglot(tensors, either)
                                                       : checkpoint::plan_safetensors(tensors, model.types),
                                        clean(order.out)}};
  checkpoint::write_whole_files(model.source, one, bar("export"));
  out << fmt::format("{}: {}, {} tensors, {}\n", one[0].target.string(), model.description,
                     one[0].file.tensors.size(), rate_text(one[0].file.bytes, begin));
  return static_cast<int>(Exit::done);
}

int write_folder(const ExportOrder& order, const config::ModelShape& shape, const Model& model,
                 std::ostream& out) {
  const auto begin = Clock::now();
  const fs::path target = clean(order.out);
  const ExportedFolder folder = export_folder(model.source, shape, model.types, target, model.folder);
  out << fmt::format("{}: {}, {} tensors as {} in {} files, {}\n", target.string(), model.description,
                     model.types.size(), folder.dtype, folder.files, rate_text(folder.bytes, begin));
  return static_cast<int>(Exit::done);
}

int export_merged(const ExportOrder& order, std::ostream& out) {
  MergedModel merged(clean(order.path), clean(order.base));
  Model model{merged, printable_line(merged.description()), merged.types(element_of(order.dtype))};
  if (is_one_file(order)) return write_file(order, model, out);
  const fs::path tokenizer = order.tokenizer.empty() ? merged.tokenizer() : clean(order.tokenizer);
  model.folder = {order.shard_bytes, tokenizer, merged.base_folder()};
  return write_folder(order, merged.shape(), model, out);
}

int export_alone(const ExportOrder& order, const config::AdapterFacts& facts, const Model& adapters,
                 std::ostream& out) {
  const auto begin = Clock::now();
  const fs::path target = clean(order.out);
  if (is_one_file(order))
    throw Error(
        Exit::usage, "adapters go into a folder",
        "a file of weights alone does not say how they are scaled, and " + target.string() + " would be one",
        "Name a folder, or add them to their model with --merge?");
  const ExportedFolder folder =
      export_adapters(adapters.source, facts, adapters.types, target, clean(order.tokenizer));
  out << fmt::format("{}: {}, adapters of rank {} as {}, {} tensors, {}\n", target.string(),
                     adapters.description, facts.lora.rank, folder.dtype, adapters.types.size(),
                     rate_text(folder.bytes, begin));
  return static_cast<int>(Exit::done);
}

/// Checkpoints of adapters had no table [adapters] at first.
void refuse_unscaled(const fs::path& step_dir, const Manifest& manifest) {
  if (std::ranges::any_of(manifest.tensors,
                          [](const auto& tensor) { return tensor.name.ends_with(".lora_A.weight"); }))
    throw Error(Exit::usage, "cannot export the adapters of " + step_dir.string(),
                "the checkpoint does not say how they are scaled", "Let its run go on and make another?");
}

}  // namespace

int ckpt_export(const ExportOrder& order, std::ostream& out) {
  refuse_contradictions(order);
  if (order.merge) return export_merged(order, out);
  if (weights::is_peft_folder(clean(order.path)))
    throw Error(Exit::usage, order.path.string() + " is as peft writes it already", "",
                "Add the adapters to their model with --merge?");
  const auto [lease, step_dir, manifest] = open_checkpoint(order.path);
  checkpoint::CheckpointTensors source(step_dir, manifest);
  Model model{source, fmt::format("step {}", manifest.point.step),
              checkpoint::types_of_model(manifest, element_of(order.dtype))};
  const std::string& toml = manifest.facts.model_toml;
  if (const auto facts = config::parse_adapters(toml, step_dir.string()))
    return export_alone(order, *facts, model, out);
  refuse_unscaled(step_dir, manifest);
  if (is_one_file(order)) return write_file(order, model, out);
  const fs::path tokenizer = order.tokenizer.empty() ? tokenizer_of_tokens(step_dir) : clean(order.tokenizer);
  model.folder = {order.shard_bytes, tokenizer, {}};
  return write_folder(order, config::parse_model(toml, step_dir.string()), model, out);
}

}  // namespace holdfast::tool
