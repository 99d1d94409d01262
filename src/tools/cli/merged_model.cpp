#include "src/tools/cli/merged_model.hpp"

#include <algorithm>
#include <map>

#include "checkpoint/exchange/export.hpp"
#include "src/base/error.hpp"
#include "src/data/tokenizer_files.hpp"
#include "src/tools/cli/ckpt_folder.hpp"
#include "src/tools/cli/run_settings.hpp"

namespace holdfast::tool {
namespace {

namespace fs = std::filesystem;
using checkpoint::Element;

weights::MergedFiles open(const fs::path& adapters, const fs::path& base) {
  weights::MergedFiles files = weights::MergedFiles::open(adapters, {}, base);
  if (files.adapters() == nullptr)
    throw Error(Exit::usage, "there is nothing to merge",
                files.base().path().string() + " holds a whole model", "Export it without --merge?");
  return files;
}

/// Of the base's tensors, by their names, "model/NAME".
std::map<std::string, Element> types_in(const weights::ModelFiles& base) {
  std::map<std::string, Element> types;
  if (const auto* manifest = base.manifest()) {
    const auto before = checkpoint::types_of_model(*manifest, {});
    auto next = before.begin();
    for (const checkpoint::LogicalTensor& tensor : manifest->tensors)
      if (tensor.name.starts_with(checkpoint::model_family)) types[tensor.name] = *next++;
  } else {
    for (const std::string& name : base.source()->names())
      if (const auto element = checkpoint::element_called(base.source()->tensor(name).dtype))
        types[std::string(checkpoint::model_family) + name] = *element;
  }
  return types;
}

}  // namespace

MergedModel::MergedModel(const fs::path& adapters, const fs::path& base)
    : files_(open(adapters, base)),
      tensors_(weights::tensors_of_model(config::base_tensors_of(files_.shape()))) {}

void MergedModel::read(const checkpoint::PieceView& piece, std::span<std::byte>) {
  files_.read({{tensors_.at(piece.tensor)}, {{0, piece.first, piece.count, piece.data}}});
}

void MergedModel::check(std::span<const int>) const { files_.check_base(); }

std::vector<Element> MergedModel::types(std::optional<Element> type) const {
  if (type) return std::vector<Element>(tensors_.size(), *type);
  const auto in_base = types_in(files_.base());
  std::vector<Element> out;
  for (const checkpoint::LogicalTensor& tensor : tensors_) {
    const Element element = in_base.at(tensor.name);
    out.push_back(element == Element::f64 ? Element::f32 : element);
  }
  return out;
}

fs::path MergedModel::base_folder() const {
  if (files_.base().source() == nullptr) return {};
  const fs::path path = fs::absolute(files_.base().path());
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? path : path.parent_path();
}

fs::path MergedModel::tokenizer() const {
  for (const fs::path& folder : {files_.adapters()->path(), base_folder()})
    if (!folder.empty() && !data::tokenizer_files(folder).empty()) return folder;
  return tokenizer_of_tokens(files_.adapters()->path());
}

std::string MergedModel::description() const {
  return files_.adapters()->path().string() + " added to " + files_.base().path().string();
}

}  // namespace holdfast::tool
