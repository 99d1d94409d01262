#include "slurm/availability.hpp"

#include <algorithm>
#include <array>

#include "slurm/asking.hpp"
#include "slurm/replies.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::slurm {
namespace {

constexpr std::string_view state_marks = "*~#!%$@^-+";  // that sinfo puts behind a state

std::string or_nothing(std::string_view word) {
  return word == "(null)" || word == "N/A" ? std::string() : std::string(word);
}

}  // namespace

NodeUse node_use(std::string_view state) {
  const std::string_view word = state.substr(0, state.find_last_not_of(state_marks) + 1);
  const auto marked = [mark = state.substr(word.size())](const char* some) {
    return mark.find_first_of(some) != std::string_view::npos;
  };
  if (marked("*")) return NodeUse::away;
  if (word == "idle") {
    if (marked("$")) return NodeUse::reserved;
    if (marked("~%!#")) return NodeUse::powered_down;
    return marked("-") ? NodeUse::busy : NodeUse::idle;
  }
  if (word == "reserved") return NodeUse::reserved;
  if (word == "powered_down" || word == "powering_up" || word == "powering_down")
    return NodeUse::powered_down;
  constexpr std::array<std::string_view, 5> taken = {"allocated", "mixed", "completing", "planned",
                                                     "blocked"};
  return std::ranges::find(taken, word) != taken.end() ? NodeUse::busy : NodeUse::away;
}

std::vector<PresentNode> read_present_nodes(std::string_view out) {
  std::vector<PresentNode> nodes;
  for (const auto line : lines_of(out)) {
    const auto fields = split(trimmed(line), '|');
    if (fields.size() != 6 || fields[0].empty() || fields[1].empty()) continue;
    PresentNode node;
    node.name = fields[0];
    node.partition = fields[1];
    node.is_default = node.partition.ends_with('*');
    if (node.is_default) node.partition.pop_back();
    node.partition_up = fields[2] == "up";
    node.time_limit = fields[3];
    node.use = node_use(fields[4]);
    node.gpus = gpus_in(fields[5]);
    node.gpu_model = gpu_model_in(fields[5]);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Reservation> read_reservations(std::string_view out) {
  std::vector<Reservation> reservations;
  for (const auto line : lines_of(out)) {
    const auto name = value_of(line, "ReservationName");
    if (!name) continue;
    const auto text = [&](const char* key) { return or_nothing(value_of(line, key).value_or("")); };
    reservations.push_back({std::string(*name), text("State") == "ACTIVE", seconds_in(text("StartTime")),
                            seconds_in(text("EndTime")), names_in(text("Nodes")), text("Users"),
                            text("Accounts")});
  }
  return reservations;
}

Availability availability(const std::string& user, std::chrono::milliseconds limit) {
  Availability now;
  // Without --all: it would list partitions that are closed to this user, too.
  now.nodes =
      read_present_nodes(answer({"sinfo", "--noheader", "--Node", "--format=%N|%P|%a|%l|%T|%G"}, limit));
  const auto try_to = [&](const char* what, const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      now.unknown.push_back(std::string(what) + ": " + error.what());
    }
  };
  try_to("topology", [&] { now.units = read_topology(answer({"scontrol", "show", "topology"}, limit)); });
  try_to("reservations", [&] {
    now.reservations = read_reservations(answer({"scontrol", "--oneliner", "show", "reservation"}, limit));
  });
  now.accounts = accounts_of(user, limit, now.unknown);
  return now;
}

}  // namespace holdfast::slurm
