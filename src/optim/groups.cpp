#include "src/optim/groups.hpp"

namespace holdfast::optim {

TensorGroups tensor_groups(const config::Optim& optim, const std::vector<config::TensorSpec>& tensors) {
  const auto texts = config::optim_groups(optim);
  TensorGroups out;
  out.settings.push_back({1, optim.weight_decay, false});
  for (const auto& group : texts)
    out.settings.push_back(
        {group.lr_scale, group.weight_decay.value_or(optim.weight_decay), group.weight_decay.has_value()});
  for (const auto& tensor : tensors) {
    out.of.push_back(config::group_of(texts, tensor.name));
    using enum config::TensorKind;
    const bool vector = tensor.kind == gain || tensor.kind == bias;
    out.decays.push_back(!vector || out.settings[out.of.back()].decays_vectors);
  }
  return out;
}

}  // namespace holdfast::optim
