#include "src/weights/merged_files.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::weights {
namespace {

/// "model/model.layers.0.self_attn.q_proj.lora_A.weight" belongs to
/// "model/model.layers.0.self_attn.q_proj.weight".
std::string matrix_of(const std::string& adapter, std::string_view part) {
  return adapter.substr(0, adapter.size() - part.size()) + ".weight";
}

fs::path base_of(const AdapterFiles& adapters, const fs::path& named) {
  if (!named.empty()) return named;
  const std::string& base = adapters.facts().base;
  if (!base.empty() && files::exists_or_fail(base)) return base;
  throw Error(
      Exit::usage,
      fmt::format("{} holds adapters, and nothing says beside which weights", adapters.path().string()),
      base.empty() ? "they name none" : "they name " + base + ", which is not here",
      "Name the weights with --base?");
}

}  // namespace

void add_adapter(std::span<float> w, std::int64_t first, std::int64_t cols, int rank, float scale,
                 const float* a, const float* b) {
  std::vector<float> sum;
  for (std::int64_t at = 0; at < std::ssize(w);) {
    const std::int64_t row = (first + at) / cols, col = (first + at) % cols,
                       n = std::min(cols - col, std::ssize(w) - at);
    sum.assign(n, 0.0f);
    for (int k = 0; k < rank; ++k) {
      const float factor = b[row * rank + k];
      const float* const from = a + k * cols + col;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * from[i];
    }
    for (std::int64_t i = 0; i < n; ++i) w[at + i] += scale * sum[i];
    at += n;
  }
}

MergedFiles MergedFiles::open(const fs::path& model, const fs::path& adapters, const fs::path& base) {
  if (is_peft_folder(model)) {
    AdapterFiles own(model);
    ModelFiles beside(base_of(own, base));
    return {std::move(beside), std::move(own)};
  }
  ModelFiles files(model);
  if (files.shape() && files.shape()->adapters.any()) {
    if (!adapters.empty())
      throw Error(Exit::usage, "there are adapters twice",
                  fmt::format("{} holds some itself", files.path().string()), "Name the base first?");
    AdapterFiles own(files.path());
    ModelFiles beside(base_of(own, base));
    return {std::move(beside), std::move(own)};
  }
  if (!base.empty())
    throw Error(Exit::usage, "there is a model twice",
                fmt::format("{} holds a whole one", files.path().string()), "Leave --base out?");
  std::optional<AdapterFiles> beside;
  if (!adapters.empty()) beside.emplace(adapters);
  return {std::move(files), std::move(beside)};
}

MergedFiles::MergedFiles(ModelFiles base, std::optional<AdapterFiles> adapters)
    : base_(std::move(base)), adapters_(std::move(adapters)) {
  if (!base_.shape())
    throw Error(Exit::usage, fmt::format("nothing says which model {} is", base_.path().string()),
                "there is no config.json beside it", "Name a folder with both?");
  shape_ = *base_.shape();
  base_.require(shape_);
  if (adapters_) load_adapters();
}

void MergedFiles::load_adapters() {
  constexpr std::string_view part_a = ".lora_A.weight", part_b = ".lora_B.weight";
  const config::ModelShape shape = adapters_->require(shape_);
  checkpoint::State all{tensors_of_model(config::tensors_of(shape)), {}};
  for (int t = 0; t < std::ssize(all.tensors); ++t) {
    const checkpoint::LogicalTensor& tensor = all.tensors[t];
    const bool is_a = tensor.name.ends_with(part_a);
    Pair& pair = pairs_[matrix_of(tensor.name, is_a ? part_a : part_b)];
    if (is_a) pair.cols = tensor.cols;
    std::vector<float>& values = is_a ? pair.a : pair.b;
    values.resize(tensor.elements());
    all.pieces.push_back({t, 0, tensor.elements(), values.data()});
  }
  adapters_->read(all);
  shape_.adapters = {};
  scale_ = static_cast<float>(shape.adapters.scale);
  rank_ = shape.adapters.rank;
}

std::span<float> MergedFiles::read_base(const std::string& name, const checkpoint::PieceView& piece) {
  const std::span<float> to(static_cast<float*>(piece.data), as_size(piece.count));
  base_.read(name, piece.first, to);
  const std::uint64_t part = digest_part(static_cast<std::uint64_t>(piece.first), to);
  const std::scoped_lock hold(*lock_);
  digests_[name] += part;
  return to;
}

void MergedFiles::read_base(const checkpoint::State& weights) {
  for (const checkpoint::PieceView& piece : weights.pieces)
    read_base(weights.tensors[piece.tensor].name, piece);
}

void MergedFiles::read(const checkpoint::State& weights) {
  for (const checkpoint::PieceView& piece : weights.pieces) {
    const std::string& name = weights.tensors[piece.tensor].name;
    const std::span<float> to = read_base(name, piece);
    const auto pair = pairs_.find(name);
    if (pair != pairs_.end())
      add_adapter(to, piece.first, pair->second.cols, rank_, scale_, pair->second.a.data(),
                  pair->second.b.data());
  }
}

void MergedFiles::check_base() const {
  const auto tensors = tensors_of_model(config::base_tensors_of(shape_));
  std::vector<std::uint64_t> digests;
  for (const checkpoint::LogicalTensor& tensor : tensors) {
    const auto found = digests_.find(tensor.name);
    digests.push_back(found == digests_.end() ? 0 : found->second);
  }
  base_.check(tensors, digests);
  if (!adapters_ || adapters_->facts().base_digest.empty()) return;
  const std::string digest = checkpoint::digest_text(checkpoint::state_digest(tensors, digests));
  if (digest != adapters_->facts().base_digest)
    throw Error(Exit::usage,
                fmt::format("the adapters of {} belong to other weights than those of {}",
                            adapters_->path().string(), base_.path().string()),
                fmt::format("they were trained on weights with digest {}, these have {}",
                            adapters_->facts().base_digest, digest),
                adapters_->facts().base.empty() ? "" : "They were trained on " + adapters_->facts().base);
}

}  // namespace holdfast::weights
