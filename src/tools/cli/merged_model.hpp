#pragma once
// A model with the adapters that were trained on it added, as `ckpt export` reads it.
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/io/elements.hpp"
#include "checkpoint/io/tensor_source.hpp"
#include "src/weights/merged_files.hpp"

namespace holdfast::tool {

class MergedModel : public checkpoint::TensorSource {
 public:
  /// `adapters`: a PEFT folder, or a checkpoint or run that trained them. `base`: the weights that they are
  /// added to, or "": those that they name. Throws Error (usage) when there are no adapters or no weights,
  /// or one does not belong to the other.
  MergedModel(const std::filesystem::path& adapters, const std::filesystem::path& base);

  std::span<const checkpoint::LogicalTensor> tensors() const override { return tensors_; }
  std::int64_t room_bytes() const override { return 0; }
  void read(const checkpoint::PieceView& piece, std::span<std::byte> room) override;
  void check(std::span<const int> tensors) const override;

  const config::ModelShape& shape() const { return files_.shape(); }
  /// What tensors() become: `type`; or else what they are in the files of the base, or were before they were
  /// imported; or fp32.
  std::vector<checkpoint::Element> types(std::optional<checkpoint::Element> type) const;
  /// The folder of the base, if it is one that others made.
  std::filesystem::path base_folder() const;
  /// Where a tokenizer lies: beside the adapters, who may have been trained with another chat template, or
  /// beside the base, or what made the tokens of the adapters' run; "" when there is none.
  std::filesystem::path tokenizer() const;
  std::string description() const;

 private:
  weights::MergedFiles files_;
  const std::vector<checkpoint::LogicalTensor> tensors_;
};

}  // namespace holdfast::tool
