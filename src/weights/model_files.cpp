#include "src/weights/model_files.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/index/safetensors_model.hpp"
#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/shards/load.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/config/hf_config.hpp"
#include "src/config/load.hpp"
#include "src/weights/find_checkpoint.hpp"

namespace holdfast::weights {

namespace safetensors = checkpoint::safetensors;

ModelFiles::ModelFiles(const fs::path& path, const std::string& asked_by) : path_(path) {
  require_there(path, asked_by);
  if (auto found = find_checkpoint(path, asked_by)) {
    path_ = found->path;
    lease_.emplace(std::move(found->lease));
    manifest_ = std::make_unique<const checkpoint::Manifest>(std::move(found->manifest));
    pieces_ = std::make_unique<checkpoint::PieceReader>(path_, *manifest_);
    shape_ = config::parse_model(manifest_->facts.model_toml, path_.string());
    return;
  }
  source_.emplace(path);
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path, ignored) ? path : fs::absolute(path).parent_path();
  if (const auto config = config::find_hf_config(folder)) shape_ = config::load_hf_config(*config).shape;
}

std::vector<std::string> ModelFiles::require(const config::ModelShape& shape) const {
  if (!source_) {
    require_weights(path_, *manifest_, shape);
    return {};
  }
  auto superfluous = require_weights(*source_, shape);
  if (shape.tied_embeddings) safetensors::require_tied_head(*source_);
  return superfluous;
}

std::string ModelFiles::description(const config::ModelShape& shape) const {
  if (manifest_)
    return fmt::format("checkpoint {}, step {}, state {}", path_.string(), manifest_->point.step,
                       checkpoint::digest_text(manifest_->state_digest));
  auto model = tensors_of_model(config::base_tensors_of(shape));
  for (auto& tensor : model) tensor.name.erase(0, checkpoint::model_family.size());
  return fmt::format("{}, {} files, {} bytes, {}", path_.string(), source_->files(), source_->tensor_bytes(),
                     safetensors::imported_identity(*source_, model));
}

std::int64_t ModelFiles::read(const checkpoint::State& weights) const {
  if (manifest_) return checkpoint::load(path_, *manifest_, weights).bytes_read;
  std::vector<safetensors::Wanted> wanted;
  for (const checkpoint::PieceView& piece : weights.pieces) {
    const auto& tensor = weights.tensors[piece.tensor];
    wanted.push_back({tensor.name.substr(checkpoint::model_family.size()),
                      piece.first,
                      {static_cast<float*>(piece.data), as_size(piece.count)}});
  }
  return source_->read(wanted);
}

void ModelFiles::read(const std::string& tensor, std::int64_t first, std::span<float> to) const {
  if (source_) {
    const safetensors::Wanted one[] = {{tensor.substr(checkpoint::model_family.size()), first, to}};
    source_->read(one);
    return;
  }
  const auto there = std::ranges::find(manifest_->tensors, tensor, &checkpoint::LogicalTensor::name);
  expects(there != manifest_->tensors.end() && there->type == DType::fp32, "require() has seen the tensor");
  const checkpoint::AlignedBuffer room(pieces_->room_bytes());
  pieces_->read(static_cast<int>(there - manifest_->tensors.begin()), first, std::ssize(to),
                reinterpret_cast<std::byte*>(to.data()), room.span());
}

void ModelFiles::check(std::span<const checkpoint::LogicalTensor> tensors,
                       std::span<const std::uint64_t> digests) const {
  if (!manifest_) return;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (!tensors[t].name.starts_with(checkpoint::model_family)) continue;
    for (std::size_t m = 0; m < manifest_->tensors.size(); ++m)
      if (manifest_->tensors[m].name == tensors[t].name && manifest_->digests[m] != digests[t])
        throw Error(
            Exit::runtime, fmt::format("{} does not hold the weights that it names", path_.string()),
            fmt::format("{} has digest {}, should be {}", tensors[t].name,
                        checkpoint::digest_text(digests[t]), checkpoint::digest_text(manifest_->digests[m])));
  }
}

}  // namespace holdfast::weights
