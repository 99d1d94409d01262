#include "src/weights/contents.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/index/safetensors_model.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/load.hpp"
#include "src/config/peft_config.hpp"
#include "src/weights/find_checkpoint.hpp"

namespace holdfast::weights {
namespace {

namespace safetensors = checkpoint::safetensors;
using checkpoint::LogicalTensor;

constexpr std::int64_t largest_config = 1 << 20;

config::AdapterFacts read_peft_config(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) > static_cast<std::uintmax_t>(largest_config) && !error)
    throw Error(Exit::usage, "cannot use the adapters of " + path.string(),
                "it is too long for an adapter_config.json");
  return config::parse_peft_config(files::read_text(path), path.string());
}

std::string trained_on(const config::AdapterFacts& facts) {
  return facts.base.empty() ? "" : "They were trained on " + facts.base;
}

}  // namespace

bool is_peft_folder(const fs::path& path) { return files::exists_or_fail(path / peft_config_name); }

std::vector<LogicalTensor> tensors_of_model(const std::vector<config::TensorSpec>& specs) {
  std::vector<LogicalTensor> out;
  for (const config::TensorSpec& spec : specs)
    out.push_back({std::string(checkpoint::model_family) + spec.name, spec.rows, spec.cols});
  return out;
}

std::vector<std::string> require_weights(const safetensors::Contents& files,
                                         const config::ModelShape& shape) {
  auto model = tensors_of_model(config::base_tensors_of(shape));
  for (auto& tensor : model) tensor.name.erase(0, checkpoint::model_family.size());
  return safetensors::require_model(files, model, shape.tied_embeddings);
}

void require_weights(const fs::path& path, const checkpoint::Manifest& manifest,
                     const config::ModelShape& shape) {
  const auto refuse = [&](std::string why) {
    throw Error(Exit::usage, fmt::format("{} does not hold the weights of this model", path.string()),
                std::move(why));
  };
  const bool adapters = config::parse_adapters(manifest.facts.model_toml, path.string()).has_value();
  for (const LogicalTensor& tensor : tensors_of_model(config::base_tensors_of(shape))) {
    const auto there = std::ranges::find(manifest.tensors, tensor.name, &LogicalTensor::name);
    if (there == manifest.tensors.end()) refuse(adapters ? "it holds adapters" : "it has no " + tensor.name);
    if (*there != tensor)
      refuse(fmt::format("{} is {} x {} there and {} x {} here", tensor.name, there->rows, there->cols,
                         tensor.rows, tensor.cols));
  }
}

AdapterContents peft_contents(const fs::path& path) {
  AdapterContents out{path, read_peft_config(path / peft_config_name), {}};
  const fs::path weights = path / peft_weights_name;
  if (!files::exists_or_fail(weights))
    throw Error(Exit::usage, "cannot use the adapters of " + path.string(),
                fmt::format("it has no {}", peft_weights_name), "Save them as safetensors?");
  const safetensors::Contents files(weights);
  const auto refuse = [&](std::string why) {
    throw Error(Exit::usage, "cannot use the adapters of " + weights.string(), std::move(why));
  };
  for (const std::string& name : files.names()) {
    const safetensors::Tensor& tensor = files.tensor(name);
    if (!name.starts_with(peft_prefix)) refuse(quoted(name) + " is no tensor of an adapter");
    if (tensor.shape.size() != 2) refuse(quoted(name) + " is no matrix");
    if (!checkpoint::element_called(tensor.dtype)) refuse(quoted(name) + " is of type " + tensor.dtype);
    out.tensors.push_back({std::string(checkpoint::model_family) + name.substr(peft_prefix.size()),
                           tensor.shape[0], tensor.shape[1]});
  }
  const auto metadata = safetensors::read_header(weights).metadata;
  if (const auto digest = metadata.find(peft_base_digest); digest != metadata.end())
    out.facts.base_digest = digest->second;
  return out;
}

AdapterContents contents_of(const fs::path& path, const checkpoint::Manifest& manifest) {
  const auto facts = config::parse_adapters(manifest.facts.model_toml, path.string());
  if (!facts)
    throw Error(Exit::usage, "there are no adapters in " + path.string(),
                "it is a checkpoint of a whole model");
  AdapterContents out{path, *facts, {}};
  for (const LogicalTensor& tensor : manifest.tensors)
    if (tensor.name.starts_with(checkpoint::model_family)) out.tensors.push_back(tensor);
  return out;
}

Error no_adapters(const fs::path& path, const std::string& asked_by) {
  if (!files::exists_or_fail(path))
    return {Exit::usage, "there are no adapters at " + path.string(), asked_by,
            "Name a folder of PEFT, a checkpoint or a run?"};
  return {Exit::usage, "there are no adapters in " + path.string(), asked_by,
          fmt::format("Name a folder with {}, a checkpoint or a run?", peft_config_name)};
}

config::ModelShape require_adapters(const AdapterContents& adapters, config::ModelShape base) {
  base.adapters = config::adapters_of(adapters.facts.lora);
  const auto refuse = [&](std::string why) {
    throw Error(
        Exit::usage,
        fmt::format("the adapters of {} do not belong to the model {}", adapters.path.string(), base.name),
        std::move(why), trained_on(adapters.facts));
  };
  const auto wanted = tensors_of_model(config::tensors_of(base));
  for (const LogicalTensor& tensor : wanted) {
    const auto there = std::ranges::find(adapters.tensors, tensor.name, &LogicalTensor::name);
    if (there == adapters.tensors.end()) refuse("there is no " + tensor.name);
    if (there->rows != tensor.rows || there->cols != tensor.cols)
      refuse(fmt::format("{} is {} x {}, and the model takes {} x {}", tensor.name, there->rows, there->cols,
                         tensor.rows, tensor.cols));
  }
  for (const LogicalTensor& tensor : adapters.tensors)
    if (std::ranges::find(wanted, tensor.name, &LogicalTensor::name) == wanted.end())
      refuse("nothing in the model takes " + quoted(tensor.name));
  return base;
}

void require_kind(const AdapterContents& adapters, const config::ModelShape& shape,
                  const config::Lora& lora) {
  const config::Adapters& here = shape.adapters;
  const config::Adapters there = require_adapters(adapters, shape).adapters;
  if (there.rank == here.rank && there.scale == here.scale && there.on == here.on) return;
  const config::Lora& theirs = adapters.facts.lora;
  throw Error(
      Exit::usage,
      fmt::format("the adapters of {} are of another kind than this run's", adapters.path.string()),
      fmt::format("there rank {}, alpha {} on {}; here rank {}, alpha {} on {}", theirs.rank, theirs.alpha,
                  fmt::join(theirs.targets, ", "), lora.rank, lora.alpha, fmt::join(lora.targets, ", ")),
      "Set lora.rank, lora.alpha and lora.targets as theirs are?");
}

void look_at_weights(const fs::path& path, const std::string& asked_by, const config::ModelShape& shape) {
  require_there(path, asked_by);
  if (const auto found = look_for_checkpoint(path, asked_by))
    require_weights(found->path, found->manifest, shape);
  else
    require_weights(safetensors::Contents(path), shape);
}

void look_at_adapters(const fs::path& path, const std::string& asked_by, const config::ModelShape& shape,
                      const config::Lora& lora) {
  if (!files::exists_or_fail(path)) throw no_adapters(path, asked_by);
  if (is_peft_folder(path)) return require_kind(peft_contents(path), shape, lora);
  const auto found = look_for_checkpoint(path, asked_by);
  if (!found) throw no_adapters(path, asked_by);
  require_kind(contents_of(found->path, found->manifest), shape, lora);
}

}  // namespace holdfast::weights
