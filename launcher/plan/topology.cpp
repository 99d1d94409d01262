#include "launcher/plan/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "slurm/hostlist.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The run of digits at `at`, without leading zeros.
std::string_view number_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  while (at + 1 < end && text[at] == '0') ++at;
  return text.substr(at, end - at);
}

std::unordered_map<std::string, std::size_t> scalable_unit_of_node(const config::ClusterFacts& facts) {
  std::unordered_map<std::string, std::size_t> out;
  for (std::size_t unit = 0; unit < facts.scalable_units.size(); ++unit) {
    for (auto& node : slurm::expand(facts.scalable_units[unit].nodes)) {
      const auto [at, fresh] = out.emplace(std::move(node), unit);
      if (!fresh)
        throw Error(Exit::usage, fmt::format("cluster {} has node {} twice", facts.name, at->first),
                    fmt::format("in units {} and {}", facts.scalable_units[at->second].name,
                                facts.scalable_units[unit].name));
    }
  }
  return out;
}

}  // namespace

bool name_before(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto x = number_at(a, i), y = number_at(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      while (i < a.size() && is_digit(a[i])) ++i;
      while (j < b.size() && is_digit(b[j])) ++j;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // the same numbers with other zeros
}

std::vector<ScalableUnitNodes> by_scalable_unit(const config::ClusterFacts& facts,
                                                const std::vector<std::string>& nodes) {
  const auto unit_of = scalable_unit_of_node(facts);
  std::vector<ScalableUnitNodes> units;
  for (const auto& unit : facts.scalable_units) units.push_back({unit.name, {}});
  units.push_back({"", {}});
  std::set<std::string> seen;
  for (const auto& node : nodes) {
    if (!seen.insert(node).second) throw Error(Exit::usage, "node " + node + " is listed twice");
    const auto at = unit_of.find(node);
    units[at == unit_of.end() ? facts.scalable_units.size() : at->second].nodes.push_back(node);
  }
  std::erase_if(units, [](const ScalableUnitNodes& unit) { return unit.nodes.empty(); });
  for (auto& unit : units) std::sort(unit.nodes.begin(), unit.nodes.end(), name_before);
  return units;
}

std::vector<std::string> hypothetical_nodes(const config::ClusterFacts& facts, int active, int spares,
                                            const std::vector<std::string>& without) {
  std::vector<std::string> all;
  for (const auto& unit : facts.scalable_units)
    for (auto& node : slurm::expand(unit.nodes)) all.push_back(std::move(node));
  for (const auto& node : without) std::erase(all, node);
  const auto wanted = as_size(active) + as_size(spares);
  if (wanted > all.size())
    throw Error(Exit::impossible,
                fmt::format("nodes + spares = {} but {} has {} {}", wanted, facts.name, all.size(),
                            without.empty() ? "nodes" : "nodes that are not excluded"),
                fmt::format("{} active nodes and {} spares", active, spares),
                as_size(active) <= all.size()
                    ? fmt::format("Use at most {} spares?", all.size() - as_size(active))
                    : fmt::format("Use at most {} nodes?", all.size()));
  std::vector<std::string> out;
  for (const auto& unit : by_scalable_unit(facts, all))
    out.insert(out.end(), unit.nodes.begin(), unit.nodes.end());
  out.resize(wanted);
  return out;
}

}  // namespace holdfast::launcher
