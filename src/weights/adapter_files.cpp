#include "src/weights/adapter_files.hpp"

#include "checkpoint/shards/load.hpp"
#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "src/weights/find_checkpoint.hpp"

namespace holdfast::weights {
namespace {

namespace safetensors = checkpoint::safetensors;

std::string peft_name(const std::string& tensor) {
  return std::string(peft_prefix) + tensor.substr(checkpoint::model_family.size());
}

}  // namespace

AdapterFiles::AdapterFiles(const fs::path& path, const std::string& asked_by) {
  if (is_peft_folder(path)) {
    contents_ = peft_contents(path);
    source_.emplace(path / peft_weights_name);
    return;
  }
  auto found = files::exists_or_fail(path) ? find_checkpoint(path, asked_by) : std::nullopt;
  if (!found) throw no_adapters(path, asked_by);
  lease_.emplace(std::move(found->lease));
  contents_ = contents_of(found->path, found->manifest);
  manifest_ = std::move(found->manifest);
}

std::int64_t AdapterFiles::read(const checkpoint::State& adapters) const {
  if (manifest_) return checkpoint::load(path(), *manifest_, adapters).bytes_read;
  std::vector<safetensors::Wanted> wanted;
  for (const checkpoint::PieceView& piece : adapters.pieces)
    wanted.push_back({peft_name(adapters.tensors[piece.tensor].name),
                      piece.first,
                      {static_cast<float*>(piece.data), as_size(piece.count)}});
  return source_->read(wanted);
}

}  // namespace holdfast::weights
