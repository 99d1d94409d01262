#pragma once
// Groups of tensors with a learning rate or a weight decay of their own: the texts of optim.groups.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/config/run_config.hpp"

namespace holdfast::config {

/// "model.embed_tokens* lr_scale=0.5 weight_decay=0": a glob over tensor names, then what is different.
struct OptimGroup {
  std::string match;                   ///< `*` any characters, `?` one; the whole name must match
  double lr_scale = 1;                 ///< times the learning rate of the step
  std::optional<double> weight_decay;  ///< of all its tensors; absent: as without the group
  bool operator==(const OptimGroup&) const = default;
};

constexpr int max_optim_groups = 7;  ///< beside group 0, the tensors that no text matches

/// The groups in their order, group 1 first. Throws Error (usage): not of the form above, a number below 0,
/// too many groups.
std::vector<OptimGroup> optim_groups(const Optim& optim);
/// The first group that matches counts: its number from 1; 0: none does.
int group_of(const std::vector<OptimGroup>& groups, std::string_view tensor);

bool matches(std::string_view glob, std::string_view name);

}  // namespace holdfast::config
