#include "slurm/reasons.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace holdfast::slurm {
namespace {

struct Reason {
  std::string_view name;  ///< SLURM may add to it: "ReqNodeNotAvail, UnavailableNodes:dgx003"
  const char* words;
  bool is_final = false;
};
constexpr std::array reasons = {
    Reason{"AccountNotAllowed", "the partition takes no jobs of this account", true},
    Reason{"BadConstraints", "no node has what it asks for", true},
    Reason{"BeginTime", "its time to begin has not come"},
    Reason{"DependencyNeverSatisfied", "what it depends on cannot happen any more", true},
    Reason{"Dependency", "another job comes first, on which it depends"},
    Reason{"InvalidAccount", "it has no valid account", true},
    Reason{"InvalidQOS", "it has no valid QOS", true},
    Reason{"JobHeldAdmin", "an administrator holds it"},
    Reason{"JobHeldUser", "it is held: 'scontrol release' lets it go"},
    Reason{"JobLaunchFailure", "its first node could not start it: does the node see the run directory?"},
    Reason{"Licenses", "licenses are in use"},
    Reason{"PartitionDown", "its partition starts no jobs now"},
    Reason{"PartitionInactive", "its partition takes no jobs now"},
    Reason{"PartitionNodeLimit", "another number of nodes than the partition allows", true},
    Reason{"PartitionTimeLimit", "more time than the partition allows", true},
    Reason{"Priority", "jobs of a higher priority come first"},
    Reason{"QOSNotAllowed", "the partition or the account does not take this QOS", true},
    Reason{"ReqNodeNotAvail", "nodes that it asks for are reserved, drained or down"},
    Reason{"ReservationDeleted", "its reservation is gone", true},
    Reason{"Reservation", "its reservation has not begun"},
    Reason{"Resources", "its nodes are busy"},
};

/// What a limit is of, in the order in which they are looked for.
struct Resource {
  std::string_view name;
  const char* words;
};
constexpr std::array resources = {
    Resource{"SubmitJob", "jobs in the queue"},
    Resource{"Jobs", "running jobs"},
    Resource{"Wall", "time"},
    Resource{"Cpu", "CPUs"},
    Resource{"CPU", "CPUs"},
    Resource{"Mem", "memory"},
    Resource{"GRES", "GRES (GPUs)"},
    Resource{"Gres", "GRES (GPUs)"},
    Resource{"Energy", "energy"},
    Resource{"License", "licenses"},
    Resource{"Billing", "billing units"},
    Resource{"Node", "nodes"},  // the last: of "MaxCpuPerNode" it is not the resource
};

bool mentions(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Of the limits of an association or a QOS: "AssocGrpNodeLimit", "QOSMaxWallDurationPerJobLimit".
struct LimitReason {
  std::string_view owner, rest;
  bool of_a_job() const {
    return mentions(rest, "PerJob") || mentions(rest, "PerNode") || rest.starts_with("Min");
  }
};
std::optional<LimitReason> limit_reason(std::string_view reason) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> owners = {
      {{"Assoc", "account"}, {"QOS", "QOS"}}};
  for (const auto& [begin, owner] : owners) {
    if (!reason.starts_with(begin)) continue;
    const auto rest = reason.substr(begin.size());
    if (rest.starts_with("Grp") || rest.starts_with("Max") || rest.starts_with("Min"))
      return LimitReason{owner, rest};
  }
  return std::nullopt;
}

std::string in_words(const LimitReason& limit) {
  const auto known =
      std::ranges::find_if(resources, [&](const Resource& one) { return mentions(limit.rest, one.name); });
  std::string what = known == resources.end() ? "resources" : known->words;
  if (mentions(limit.rest, "Minutes")) what = "minutes of " + what;
  if (limit.rest.starts_with("Min"))
    return fmt::format("fewer {} than a job of the {} must have", what, limit.owner);
  if (limit.rest.starts_with("Grp"))
    return fmt::format("more {} than the {}'s jobs may have together", what, limit.owner);
  if (mentions(limit.rest, "PerNode"))
    return fmt::format("more {} on a node than a job of the {} may have", what, limit.owner);
  if (mentions(limit.rest, "PerJob"))
    return fmt::format("more {} than a job of the {} may have", what, limit.owner);
  if (mentions(limit.rest, "PerAcc"))
    return fmt::format("more {} than one account may have in the {}", what, limit.owner);
  return fmt::format("more {} than you may have in the {}", what, limit.owner);
}

const Reason* known_reason(std::string_view reason) {
  const auto known =
      std::ranges::find_if(reasons, [&](const Reason& one) { return reason.starts_with(one.name); });
  return known == reasons.end() ? nullptr : &*known;
}

}  // namespace

std::string reason_in_words(std::string_view reason) {
  if (const auto limit = limit_reason(reason)) return in_words(*limit);
  const Reason* known = known_reason(reason);
  return known ? known->words : "";
}

bool never_starts(std::string_view reason) {
  if (const auto limit = limit_reason(reason)) return limit->of_a_job();
  const Reason* known = known_reason(reason);
  return known && known->is_final;
}

}  // namespace holdfast::slurm
