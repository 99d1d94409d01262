#include <fmt/core.h>

#include "checkpoint/exchange/checkpoint_tensors.hpp"
#include "checkpoint/exchange/export.hpp"
#include "checkpoint/exchange/import.hpp"
#include "checkpoint/exchange/index_file.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/printable.hpp"
#include "src/config/hf_config.hpp"
#include "src/config/load.hpp"
#include "src/tools/cli/ckpt_change.hpp"
#include "src/tools/cli/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {

/// --model, or the config.json in the folder of the weights.
std::string model_for(const ImportFiles& files) {
  if (!files.model.empty()) return files.model;
  std::error_code ignored;
  const fs::path source = clean(files.source);
  const fs::path folder = fs::is_directory(source, ignored) ? source : fs::absolute(source).parent_path();
  if (const auto config = config::find_hf_config(folder)) return fs::absolute(*config).string();
  throw Error(Exit::usage, "nothing says which model " + source.string() + " is of",
              "there is no config.json in " + folder.string(), "Name it with --model?");
}

checkpoint::ImportOrder order_of(const ImportFiles& files) {
  const config::ModelShape shape = config::load_model(model_for(files));
  checkpoint::ImportOrder order;
  order.source = files.source;
  order.checkpoints = clean(files.out);
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

int ckpt_consolidate(const fs::path& path, const fs::path& target, std::ostream& out) {
  const auto begin = Clock::now();
  const auto [lease, step_dir, manifest] = open_checkpoint(path);
  checkpoint::CheckpointTensors source(step_dir, manifest);
  const checkpoint::NamedFile one[] = {{checkpoint::plan_consolidated(manifest), target}};
  checkpoint::write_whole_files(source, one, bar("consolidate"));
  out << fmt::format("{}: step {}, {} tensors, {}\n", target.string(), manifest.point.step,
                     one[0].file.tensors.size(), rate_text(one[0].file.bytes, begin));
  return static_cast<int>(Exit::done);
}

int ckpt_index(const fs::path& path, std::ostream& out) {
  const auto begin = Clock::now();
  const auto [lease, step_dir, manifest] = open_checkpoint(path);
  checkpoint::write_index(step_dir, manifest);
  const fs::path index = step_dir / checkpoint::index_file_name;
  if (manifest.index)
    out << fmt::format("{}: written with the checkpoint, which has format {}\n", index.string(),
                       manifest.version);
  else
    out << fmt::format("{}: step {}, {} tensors, {}\n", index.string(), manifest.point.step,
                       manifest.tensors.size(),
                       rate_text(static_cast<std::int64_t>(fs::file_size(index)), begin));
  return static_cast<int>(Exit::done);
}

int ckpt_import(const ImportFiles& files, std::ostream& out) {
  const auto begin = Clock::now();
  const checkpoint::Imported imported = checkpoint::import_safetensors(order_of(files), bar("import"));
  for (const std::string& name : imported.skipped)
    out << fmt::format("not needed: {}\n", printable_line(name));
  out << fmt::format("{}: {}\nStart from it with --set run.resume={}\n", imported.path.string(),
                     rate_text(imported.bytes, begin),
                     fs::absolute(imported.path).lexically_normal().string());
  return static_cast<int>(Exit::done);
}

}  // namespace holdfast::tool
