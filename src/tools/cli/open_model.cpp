#include "src/tools/cli/open_model.hpp"

#include "src/base/error.hpp"

namespace holdfast::tool {

tensor::DType dtype_of(const std::string& name) {
  if (name == "fp32") return tensor::DType::fp32;
  if (name == "bf16") return tensor::DType::bf16;
  throw Error(Exit::usage, "cannot compute in '" + name + "'", "", "fp32 and bf16 are offered");
}

const std::filesystem::path& path_of(const weights::MergedFiles& files, const ModelOrder& order) {
  const bool apart = !order.adapters.empty() || files.adapters() == nullptr;
  return apart ? files.base().path() : files.adapters()->path();
}

infer::Parameters load_merged(weights::MergedFiles& files, tensor::DType type) {
  infer::Parameters parameters(files.shape(), type);
  parameters.fill(config::base_tensors_of(files.shape()),
                  [&](const checkpoint::State& state) { files.read(state); });
  files.check_base();
  return parameters;
}

infer::Parameters load_apart(weights::MergedFiles& files, tensor::DType type) {
  const weights::AdapterFiles* const adapters = files.adapters();
  const config::ModelShape shape = adapters == nullptr ? files.shape() : adapters->require(files.shape());
  infer::Parameters parameters(shape, type);
  parameters.fill(config::base_tensors_of(shape),
                  [&](const checkpoint::State& state) { files.read_base(state); });
  files.check_base();
  if (adapters != nullptr)
    parameters.fill(config::tensors_of(shape),
                    [&](const checkpoint::State& state) { adapters->read(state); });
  return parameters;
}

}  // namespace holdfast::tool
