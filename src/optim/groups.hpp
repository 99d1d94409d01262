#pragma once
// Which tensors have a learning rate and a weight decay of their own.
#include <array>
#include <vector>

#include "src/config/model_shape.hpp"
#include "src/config/optim_group.hpp"

namespace holdfast::optim {

constexpr std::size_t max_groups = config::max_optim_groups + 1;  ///< with group 0, the base

/// A group with everything filled in.
struct GroupSettings {
  double lr_scale = 1;
  double weight_decay = 0;
  bool decays_vectors = false;  ///< norm gains and biases too: only where the group names a weight decay
};

/// Pure: a function of the settings and of the tensors' names and kinds.
struct TensorGroups {
  std::vector<GroupSettings> settings;  ///< [0] is the base; at most `max_groups`
  std::vector<int> of;                  ///< by logical tensor (an index of config::tensors_of)
  std::vector<bool> decays;             ///< by logical tensor
};

/// Throws Error (usage) for texts that are no groups.
TensorGroups tensor_groups(const config::Optim& optim, const std::vector<config::TensorSpec>& tensors);

}  // namespace holdfast::optim
