#include "src/config/choices.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"

namespace holdfast::config {

template <>
const std::vector<std::string>& names_of<Strategy>() {
  static const std::vector<std::string> names = {"no_shard", "full_shard", "hybrid_shard", "shard_grad_op",
                                                 "hfsdp"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Precision>() {
  static const std::vector<std::string> names = {"fp32", "bf16", "auto"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Products>() {
  static const std::vector<std::string> names = {"bf16", "fp8"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Scaling>() {
  static const std::vector<std::string> names = {"delayed", "current"};
  return names;
}
template <>
const std::vector<std::string>& names_of<RopeType>() {
  static const std::vector<std::string> names = {"llama3", "linear", "dynamic", "yarn", "longrope"};
  return names;
}
template <>
const std::vector<std::string>& names_of<ActivationCheckpointing>() {
  static const std::vector<std::string> names = {"none", "selective", "attention", "full"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Schedule>() {
  static const std::vector<std::string> names = {"cosine", "linear", "constant", "wsd"};
  return names;
}
template <>
const std::vector<std::string>& names_of<GuardAction>() {
  static const std::vector<std::string> names = {"report", "stop", "skip", "rollback"};
  return names;
}

template <>
const std::vector<std::string>& names_of<Device>() {
  static const std::vector<std::string> names = {"auto", "cpu", "cuda"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Offload>() {
  static const std::vector<std::string> names = {"none", "moments"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Base>() {
  static const std::vector<std::string> names = {"parameters", "int8", "nf4"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Interval>() {
  static const std::vector<std::string> names = {"fixed", "auto"};
  return names;
}
template <>
const std::vector<std::string>& names_of<WhenBusy>() {
  static const std::vector<std::string> names = {"wait", "skip"};
  return names;
}
template <>
const std::vector<std::string>& names_of<ReadBack>() {
  static const std::vector<std::string> names = {"none", "sample", "full"};
  return names;
}
template <>
const std::vector<std::string>& names_of<Partner>() {
  static const std::vector<std::string> names = {"auto", "none"};
  return names;
}

template <>
const std::vector<std::string>& names_of<OnStraggler>() {
  static const std::vector<std::string> names = {"report", "substitute"};
  return names;
}

template <>
const std::vector<std::string>& names_of<WhenShort>() {
  static const std::vector<std::string> names = {"auto", "shrink", "requeue", "stop"};
  return names;
}

template <>
const std::vector<std::string>& names_of<RankKind>() {
  static const std::vector<std::string> names = {"auto", "client", "sigterm", "plain"};
  return names;
}

template <>
const std::vector<std::string>& names_of<ContainerRuntime>() {
  static const std::vector<std::string> names = {"pyxis", "apptainer"};
  return names;
}

template <class Choice>
const std::string& name_of(Choice choice) {
  return names_of<Choice>().at(as_size(choice));
}

template <class Choice>
std::optional<Choice> choice_called(const std::string& name) {
  const auto& names = names_of<Choice>();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<Choice>(at - names.begin());
}

template const std::string& name_of(Strategy);
template const std::string& name_of(Precision);
template const std::string& name_of(Products);
template const std::string& name_of(Scaling);
template const std::string& name_of(RopeType);
template const std::string& name_of(ActivationCheckpointing);
template const std::string& name_of(Schedule);
template const std::string& name_of(GuardAction);
template const std::string& name_of(Device);
template const std::string& name_of(Offload);
template const std::string& name_of(Base);
template const std::string& name_of(Interval);
template const std::string& name_of(WhenBusy);
template const std::string& name_of(ReadBack);
template const std::string& name_of(Partner);
template const std::string& name_of(WhenShort);
template const std::string& name_of(OnStraggler);
template const std::string& name_of(RankKind);
template const std::string& name_of(ContainerRuntime);
template std::optional<Strategy> choice_called(const std::string&);
template std::optional<Precision> choice_called(const std::string&);
template std::optional<Products> choice_called(const std::string&);
template std::optional<Scaling> choice_called(const std::string&);
template std::optional<RopeType> choice_called(const std::string&);
template std::optional<ActivationCheckpointing> choice_called(const std::string&);
template std::optional<Schedule> choice_called(const std::string&);
template std::optional<GuardAction> choice_called(const std::string&);
template std::optional<Device> choice_called(const std::string&);
template std::optional<Offload> choice_called(const std::string&);
template std::optional<Base> choice_called(const std::string&);
template std::optional<Interval> choice_called(const std::string&);
template std::optional<WhenBusy> choice_called(const std::string&);
template std::optional<ReadBack> choice_called(const std::string&);
template std::optional<Partner> choice_called(const std::string&);
template std::optional<WhenShort> choice_called(const std::string&);
template std::optional<OnStraggler> choice_called(const std::string&);
template std::optional<RankKind> choice_called(const std::string&);
template std::optional<ContainerRuntime> choice_called(const std::string&);

}  // namespace holdfast::config
