#include "src/weights/adapter_files.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/exchange/export.hpp"
#include "checkpoint/exchange/safetensors_model.hpp"
#include "checkpoint/shards/load.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/load.hpp"
#include "src/config/peft_config.hpp"
#include "src/weights/find_checkpoint.hpp"
#include "src/weights/model_files.hpp"

namespace holdfast::weights {
namespace {

namespace safetensors = checkpoint::safetensors;

constexpr std::int64_t largest_config = 1 << 20;

std::string peft_name(const std::string& tensor) {
  return std::string(peft_prefix) + tensor.substr(checkpoint::model_family.size());
}
std::string our_name(const std::string& peft) {
  return std::string(checkpoint::model_family) + peft.substr(peft_prefix.size());
}

config::AdapterFacts read_peft_config(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) > static_cast<std::uintmax_t>(largest_config) && !error)
    throw Error(Exit::usage, "cannot use the adapters of " + path.string(),
                "it is too long for an adapter_config.json");
  return config::parse_peft_config(files::read_text(path), path.string());
}

}  // namespace

bool is_peft_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / peft_config_name, ignored);
}

AdapterFiles::AdapterFiles(const fs::path& path, const std::string& asked_by) : path_(path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw Error(Exit::usage, "there are no adapters at " + path.string(), asked_by);
  if (is_peft_folder(path))
    open_peft();
  else
    open_checkpoint(asked_by);
}

void AdapterFiles::open_peft() {
  facts_ = read_peft_config(path_ / peft_config_name);
  const fs::path weights = path_ / peft_weights_name;
  std::error_code ignored;
  if (!fs::exists(weights, ignored))
    throw Error(Exit::usage, "cannot use the adapters of " + path_.string(),
                fmt::format("it has no {}", peft_weights_name), "Save them as safetensors?");
  source_.emplace(weights);
  const auto refuse = [&](std::string why) {
    throw Error(Exit::usage, "cannot use the adapters of " + weights.string(), std::move(why));
  };
  for (const std::string& name : source_->names()) {
    const safetensors::Tensor& tensor = source_->tensor(name);
    if (!name.starts_with(peft_prefix)) refuse(quoted(name) + " is no tensor of an adapter");
    if (tensor.shape.size() != 2) refuse(quoted(name) + " is no matrix");
    if (!checkpoint::element_called(tensor.dtype)) refuse(quoted(name) + " is of type " + tensor.dtype);
    tensors_.push_back({our_name(name), tensor.shape[0], tensor.shape[1]});
  }
  const auto metadata = safetensors::read_header(weights).metadata;
  if (const auto digest = metadata.find(peft_base_digest); digest != metadata.end())
    facts_.base_digest = digest->second;
}

void AdapterFiles::open_checkpoint(const std::string& asked_by) {
  auto found = find_checkpoint(path_, asked_by);
  if (!found)
    throw Error(Exit::usage, "there are no adapters in " + path_.string(), asked_by,
                fmt::format("Name a folder with {}, a checkpoint or a run?", peft_config_name));
  path_ = found->path;
  lease_.emplace(std::move(found->lease));
  manifest_ = std::move(found->manifest);
  const auto facts = config::parse_adapters(manifest_->facts.model_toml, path_.string());
  if (!facts)
    throw Error(Exit::usage, "there are no adapters in " + path_.string(),
                "it is a checkpoint of a whole model");
  facts_ = *facts;
  for (const checkpoint::LogicalTensor& tensor : manifest_->tensors)
    if (tensor.name.starts_with(checkpoint::model_family)) tensors_.push_back(tensor);
}

config::ModelShape AdapterFiles::require(config::ModelShape base) const {
  base.adapters = config::adapters_of(facts_.lora);
  const auto refuse = [&](std::string why) {
    throw Error(Exit::usage,
                fmt::format("the adapters of {} do not belong to the model {}", path_.string(), base.name),
                std::move(why), facts_.base.empty() ? "" : "They were trained on " + facts_.base);
  };
  const auto wanted = tensors_of_model(config::tensors_of(base));
  for (const checkpoint::LogicalTensor& tensor : wanted) {
    const auto there = std::ranges::find(tensors_, tensor.name, &checkpoint::LogicalTensor::name);
    if (there == tensors_.end()) refuse("there is no " + tensor.name);
    if (there->rows != tensor.rows || there->cols != tensor.cols)
      refuse(fmt::format("{} is {} x {}, and the model takes {} x {}", tensor.name, there->rows, there->cols,
                         tensor.rows, tensor.cols));
  }
  for (const checkpoint::LogicalTensor& tensor : tensors_)
    if (std::ranges::find(wanted, tensor.name, &checkpoint::LogicalTensor::name) == wanted.end())
      refuse("nothing in the model takes " + quoted(tensor.name));
  return base;
}

std::int64_t AdapterFiles::read(const checkpoint::State& adapters) const {
  if (manifest_) return checkpoint::load(path_, *manifest_, adapters).bytes_read;
  std::vector<safetensors::Wanted> wanted;
  for (const checkpoint::PieceView& piece : adapters.pieces)
    wanted.push_back({peft_name(adapters.tensors[piece.tensor].name),
                      piece.first,
                      {static_cast<float*>(piece.data), as_size(piece.count)}});
  return source_->read(wanted);
}

}  // namespace holdfast::weights
