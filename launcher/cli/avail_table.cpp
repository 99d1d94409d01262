// SLURM's answer has one entry for each node and partition. partitions_of() groups these by partition: a node
// of two partitions is counted in both, and idle nodes are divided into blocks by scalable unit, the largest
// first. avail_text() writes a table of these, then a sentence for each reservation, for the user's accounts
// and for each limit; avail_json() writes the same facts as JSON, with powered-down nodes apart from reserved
// ones.
//
// A question that SLURM did not answer is no error here: it becomes a line "not known: ..." and an entry of
// `unknown`. Accounts that are not known are null in JSON, and not mentioned in the text.
#include "launcher/cli/avail_table.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <set>

#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using slurm::NodeUse;

/// The idle nodes of a partition under one leaf switch, or in one block.
struct IdleBlock {
  std::string name;
  std::vector<std::string> idle;
};

struct PartitionNow {
  std::string name, time_limit;
  bool is_default = false, up = false;
  std::map<NodeUse, int> nodes;
  std::set<std::string> shapes;  ///< GPUs of its nodes: "8 h100"
  std::vector<std::string> idle;
  std::vector<IdleBlock> blocks;  ///< the largest first; those without an idle node are left out
  int of(NodeUse use) const { return nodes.contains(use) ? nodes.at(use) : 0; }
  int all() const {
    int sum = 0;
    for (const auto& [use, count] : nodes) sum += count;
    return sum;
  }
};

std::string shape_of(const slurm::PresentNode& node) {
  if (node.gpus == 0) return "none";
  return fmt::format("{}{}{}", node.gpus, node.gpu_model.empty() ? "" : " ", node.gpu_model);
}

std::vector<IdleBlock> blocks_of(const std::vector<std::string>& idle,
                                 const std::vector<slurm::ScalableUnit>& units) {
  std::vector<IdleBlock> blocks;
  for (const auto& unit : units) {
    IdleBlock block{unit.name, {}};
    for (const auto& node : unit.nodes)
      if (std::ranges::find(idle, node) != idle.end()) block.idle.push_back(node);
    if (!block.idle.empty()) blocks.push_back(std::move(block));
  }
  std::ranges::stable_sort(
      blocks, [](const IdleBlock& a, const IdleBlock& b) { return a.idle.size() > b.idle.size(); });
  return blocks;
}

/// The default one first, then as SLURM lists them.
std::vector<PartitionNow> partitions_of(const slurm::Availability& now, const std::string& only) {
  std::vector<PartitionNow> out;
  for (const auto& node : now.nodes) {
    if (!only.empty() && node.partition != only) continue;
    auto it = std::ranges::find(out, node.partition, &PartitionNow::name);
    if (it == out.end())
      it = out.insert(it,
                      {node.partition, node.time_limit, node.is_default, node.partition_up, {}, {}, {}, {}});
    ++it->nodes[node.use];
    it->shapes.insert(shape_of(node));
    if (node.use == NodeUse::idle) it->idle.push_back(node.name);
  }
  if (out.empty() && !only.empty())
    throw Error(Exit::usage, "SLURM tells of no partition " + only, "", "'holdfast avail' lists them");
  for (auto& partition : out) partition.blocks = blocks_of(partition.idle, now.units);
  std::ranges::stable_partition(out, &PartitionNow::is_default);
  return out;
}

using AvailRow = std::array<std::string, 9>;

AvailRow avail_row(const PartitionNow& p) {
  const auto count = [&](NodeUse use) { return std::to_string(p.of(use)); };
  return {
      p.name + (p.is_default ? "*" : "") + (p.up ? "" : " (down)"),
      p.time_limit,
      std::to_string(p.all()),
      count(NodeUse::idle),
      count(NodeUse::busy),
      std::to_string(p.of(NodeUse::reserved) + p.of(NodeUse::powered_down)),
      count(NodeUse::away),
      fmt::format("{}", fmt::join(p.shapes, ", ")),
      p.blocks.empty() ? "-" : fmt::format("{} ({})", p.blocks.front().idle.size(), p.blocks.front().name)};
}

std::string partition_table(const std::vector<PartitionNow>& partitions) {
  std::vector<AvailRow> rows = {
      {"PARTITION", "TIME LIMIT", "NODES", "IDLE", "BUSY", "RESERVED", "AWAY", "GPUS", "LARGEST IDLE BLOCK"}};
  for (const auto& partition : partitions) rows.push_back(avail_row(partition));
  std::array<std::size_t, std::tuple_size_v<AvailRow>> widths{};
  for (const AvailRow& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const AvailRow& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) out += fmt::format("{:<{}}  ", row[i], widths[i]);
    out += row.back() + "\n";
  }
  return out;
}

std::string minute_of(const std::optional<double>& unix) {
  return unix ? fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<std::time_t>(*unix)))
              : "an unknown time";
}

std::string in_words(const slurm::Reservation& r) {
  std::string whom;
  if (!r.users.empty()) whom += "users " + r.users;
  if (!r.accounts.empty()) whom += (whom.empty() ? "accounts " : ", accounts ") + r.accounts;
  return fmt::format("reservation {}: {} nodes{}, {} {} to {}{}\n", r.name, r.nodes.size(),
                     r.nodes.empty() ? "" : " (" + slurm::compress(r.nodes) + ")", r.active ? "now," : "from",
                     minute_of(r.start), minute_of(r.end), whom.empty() ? "" : ", for " + whom);
}

std::string in_words(const slurm::Limits& of) {
  std::vector<std::string> limits;
  for (const auto& [name, limit] : of.limits)
    limits.push_back(
        fmt::format("{} {}{}", name, limit.value, limit.used.empty() ? "" : " (used: " + limit.used + ")"));
  const std::string whose = of.account.empty() ? "QOS " + of.qos
                            : of.shared        ? fmt::format("account {}, all its users together", of.account)
                                               : "your account " + of.account;
  return fmt::format("{}{}: {}\n", whose, of.partition.empty() ? "" : " in " + of.partition,
                     fmt::join(limits, ", "));
}

std::string in_words(const slurm::Accounts& of) {
  if (!of.accounts) return "";
  if (of.accounts->empty()) return "you have no account on this cluster: SLURM takes no job of yours\n";
  std::string out = fmt::format("your accounts (-A): {}\n", fmt::join(*of.accounts, ", "));
  if (!of.qos.empty()) out += fmt::format("your QOS (-q): {}\n", fmt::join(of.qos, ", "));
  for (const auto& limits : of.limits) out += in_words(limits);
  return out;
}

}  // namespace

std::string avail_text(const slurm::Availability& now, const std::string& partition) {
  std::string out = partition_table(partitions_of(now, partition));
  for (const auto& reservation : now.reservations) out += in_words(reservation);
  out += in_words(now.accounts);
  for (const auto& why : now.unknown) out += "not known: " + why + "\n";
  return out;
}

json avail_json(const slurm::Availability& now, const std::string& partition) {
  const auto or_null = [](const std::optional<double>& value) { return value ? json(*value) : json(); };
  json partitions = json::array();
  for (const auto& p : partitions_of(now, partition)) {
    json blocks = json::array();
    for (const auto& block : p.blocks)
      blocks.push_back(
          {{"name", block.name}, {"idle", block.idle.size()}, {"idle_nodes", slurm::compress(block.idle)}});
    partitions.push_back({{"name", p.name},
                          {"default", p.is_default},
                          {"up", p.up},
                          {"time_limit", p.time_limit},
                          {"nodes", p.all()},
                          {"idle", p.of(NodeUse::idle)},
                          {"busy", p.of(NodeUse::busy)},
                          {"reserved", p.of(NodeUse::reserved)},
                          {"powered_down", p.of(NodeUse::powered_down)},
                          {"away", p.of(NodeUse::away)},
                          {"gpus", p.shapes},
                          {"idle_nodes", p.idle.empty() ? "" : slurm::compress(p.idle)},
                          {"blocks", std::move(blocks)}});
  }
  json reservations = json::array(), limits = json::array();
  for (const auto& r : now.reservations)
    reservations.push_back({{"name", r.name},
                            {"active", r.active},
                            {"start", or_null(r.start)},
                            {"end", or_null(r.end)},
                            {"nodes", r.nodes.empty() ? "" : slurm::compress(r.nodes)},
                            {"users", r.users},
                            {"accounts", r.accounts}});
  for (const auto& of : now.accounts.limits) {
    std::map<std::string, std::string> values, used;
    for (const auto& [name, limit] : of.limits) {
      values[name] = limit.value;
      if (!limit.used.empty()) used[name] = limit.used;
    }
    limits.push_back({{"account", of.account},
                      {"partition", of.partition},
                      {"qos", of.qos},
                      {"shared", of.shared},
                      {"limits", values},
                      {"used", used}});
  }
  return {{"schema_version", 1},
          {"partitions", std::move(partitions)},
          {"reservations", std::move(reservations)},
          {"accounts", now.accounts.accounts ? json(*now.accounts.accounts) : json()},
          {"qos", now.accounts.qos},
          {"limits", std::move(limits)},
          {"unknown", now.unknown}};
}

}  // namespace holdfast::launcher
