#pragma once
// The enums of run_config.hpp, and RopeType, as files spell them. For Strategy, Precision, Products, Scaling,
// ActivationCheckpointing, Schedule, GuardAction, Device, Offload, Base, Interval, WhenBusy, ReadBack,
// Partner, OnStraggler, WhenShort, RankKind, ContainerRuntime.
#include <optional>
#include <string>
#include <vector>

#include "src/base/rope_type.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// In the order of the enum.
template <class Choice>
const std::vector<std::string>& names_of();
/// For example "hybrid_shard".
template <class Choice>
const std::string& name_of(Choice choice);
/// The other way; nothing for a name that no choice has.
template <class Choice>
std::optional<Choice> choice_called(const std::string& name);

}  // namespace holdfast::config
