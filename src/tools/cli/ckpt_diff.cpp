#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/verify/diff.hpp"
#include "src/base/error.hpp"
#include "src/base/printable.hpp"
#include "src/base/strict_json.hpp"
#include "src/tools/cli/ckpt.hpp"
#include "src/tools/cli/ckpt_paths.hpp"

namespace holdfast::tool {
namespace {

using checkpoint::Difference;
using checkpoint::LogicalTensor;
using checkpoint::Manifest;
using checkpoint::TensorDifference;
using checkpoint::ValueDifference;
using Json = nlohmann::ordered_json;

std::string shape_text(const LogicalTensor& tensor) {
  return fmt::format("{} x {} {}", tensor.rows, tensor.cols, name_of(tensor.type));
}

/// A value of a fact: its first line, and short.
std::string short_text(std::string text) {
  text = printable_line(text.substr(0, text.find('\n')));
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string change_text(const TensorDifference& change, const std::optional<ValueDifference>& values) {
  if (!change.comparable())
    return fmt::format("{} -> {}", shape_text(change.before), shape_text(change.after));
  if (!values) return "other values";
  return fmt::format("{} of {} elements, max abs {:.3g}, max rel {:.3g}", values->different, values->elements,
                     values->max_absolute, values->max_relative);
}

void print_text(const Difference& found, const std::vector<std::optional<ValueDifference>>& values,
                std::ostream& out) {
  for (const auto& fact : found.facts)
    out << fmt::format("fact     {}: {} -> {}\n", fact.name, short_text(fact.before), short_text(fact.after));
  for (const std::string& name : found.removed) out << fmt::format("removed  {}\n", name);
  for (const std::string& name : found.added) out << fmt::format("added    {}\n", name);
  for (std::size_t i = 0; i < found.changed.size(); ++i)
    out << fmt::format("changed  {}: {}\n", found.changed[i].name, change_text(found.changed[i], values[i]));
  out << fmt::format("{}: {} tensors are the same, {} changed, {} added, {} removed\n",
                     found.same_state() ? "same state" : "different state", found.same, found.changed.size(),
                     found.added.size(), found.removed.size());
}

Json json_of(const Difference& found, const std::vector<std::optional<ValueDifference>>& values) {
  Json facts = Json::array(), changed = Json::array();
  for (const auto& fact : found.facts)
    facts.push_back({{"name", fact.name}, {"before", fact.before}, {"after", fact.after}});
  for (std::size_t i = 0; i < found.changed.size(); ++i) {
    const TensorDifference& change = found.changed[i];
    Json entry = {
        {"name", change.name}, {"before", shape_text(change.before)}, {"after", shape_text(change.after)}};
    if (const auto& v = values[i])
      entry.update({{"different", v->different},
                    {"elements", v->elements},
                    {"max_absolute", v->max_absolute},
                    {"max_relative", v->max_relative}});
    changed.push_back(entry);
  }
  return {{"schema_version", 1},  {"same_state", found.same_state()},
          {"facts", facts},       {"removed", found.removed},
          {"added", found.added}, {"changed", changed},
          {"same", found.same}};
}

}  // namespace

int ckpt_diff(const DiffOrder& order, std::ostream& out) {
  const auto [lease_before, before, a] = open_checkpoint(order.before);
  const auto [lease_after, after, b] = open_checkpoint(order.after);
  const Difference found = checkpoint::diff(a, b);
  std::vector<std::optional<ValueDifference>> values(found.changed.size());
  for (std::size_t i = 0; order.values && i < values.size(); ++i)
    if (found.changed[i].comparable())
      values[i] = checkpoint::diff_values(before, a, after, b, found.changed[i].name,
                                          bar("compare " + found.changed[i].name));
  if (order.json)
    out << json_text(json_of(found, values), 2) << '\n';
  else
    print_text(found, values, out);
  return static_cast<int>(found.same_state() ? Exit::done : Exit::runtime);
}

}  // namespace holdfast::tool
