#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "checkpoint/export.hpp"
#include "checkpoint/import.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/config/load.hpp"
#include "src/tool/ckpt_change.hpp"
#include "src/tool/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Manifest;

std::string rate_text(std::int64_t bytes, Clock::time_point begin) {
  const double seconds = std::max(1e-6, std::chrono::duration<double>(Clock::now() - begin).count());
  return fmt::format("{} in {:.1f} s ({:.0f} MB/s)", size_text(bytes), seconds,
                     static_cast<double>(bytes) / 1e6 / seconds);
}

int copy(const fs::path& step_dir, Manifest manifest, const checkpoint::WholeFile& file,
         const fs::path& target, const std::string& what, std::ostream& out) {
  const auto begin = Clock::now();
  const std::int64_t step = manifest.point.step;
  checkpoint::write_whole_file(step_dir, std::move(manifest), file, target, bar(what));
  out << fmt::format("{}: step {}, {} tensors, {}\n", target.string(), step, file.tensors.size(),
                     rate_text(file.bytes, begin));
  return static_cast<int>(Exit::done);
}

checkpoint::ImportOrder order_of(const ImportFiles& files) {
  const config::ModelShape shape = config::load_model(files.model);
  checkpoint::ImportOrder order;
  order.source = files.source, order.checkpoints = clean(files.out);
  for (const config::TensorSpec& spec : config::tensors_of(shape))
    order.model.push_back({spec.name, spec.rows, spec.cols, DType::fp32});
  order.tied = shape.tied_embeddings;
  order.moments = files.bf16_moments ? DType::bf16 : DType::fp32;
  order.facts.model_toml = config::to_toml(shape);
  order.facts.numerics = checkpoint::imported_numerics;
  order.facts.strategy = order.facts.data_identity = order.facts.config_hash = "imported";
  return order;
}

}  // namespace

int ckpt_export(const ExportOrder& order, std::ostream& out) {
  const fs::path step_dir = checkpoint_of(order.path);
  Manifest manifest = checkpoint::read_manifest(step_dir);
  const DType type = order.bf16 ? DType::bf16 : DType::fp32;
  const checkpoint::WholeFile file = order.polyglot ? checkpoint::plan_polyglot(manifest, type)
                                                    : checkpoint::plan_safetensors(manifest, type);
  return copy(step_dir, std::move(manifest), file, order.out, "export", out);
}

int ckpt_consolidate(const fs::path& path, const fs::path& target, std::ostream& out) {
  const fs::path step_dir = checkpoint_of(path);
  Manifest manifest = checkpoint::read_manifest(step_dir);
  const checkpoint::WholeFile file = checkpoint::plan_consolidated(manifest);
  return copy(step_dir, std::move(manifest), file, target, "consolidate", out);
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
