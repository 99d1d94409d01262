#include "launcher/job/job_roster.hpp"

#include <algorithm>

#include "launcher/supervise/agent_ports.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/control/names.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis names_limit{5000};  // to look up the names of all nodes

/// The IP addresses of nodes that SLURM knows by a name: a node that cannot resolve the name of another uses
/// them.
void look_up_names(Roster& roster) {
  std::vector<std::string> names;
  for (const auto& node : roster.nodes)
    if (!control::is_ip_address(node.address)) names.push_back(node.address);
  auto found = control::look_up_all(names, names_limit);
  for (auto& node : roster.nodes) {
    const auto here = found.find(node.address);
    if (here == found.end()) continue;
    if (!here->second.why.empty())
      log::warn("the address of node {}: {}; the other nodes have to know it", node.name, here->second.why);
    node.ip_addresses = std::move(here->second.addresses);
  }
}

}  // namespace

Allocation allocation(slurm::Cluster& cluster, const slurm::JobEnv& env) {
  try {
    if (const auto job = cluster.job(env.job); job && !job->nodes.empty())
      return {job->nodes, job->batch_host, job->end_time};
  } catch (const Error& error) {
    log::warn("{}; using the node list of the job's start", error.what());
  }
  return {env.nodes, env.nodes.empty() ? std::string() : env.nodes.front(), env.end_time};
}

std::map<std::string, int> gpus_of(slurm::Cluster& cluster, slurm::JobId job) {
  try {
    return cluster.gpus(job);
  } catch (const Error& error) {
    log::warn("{}; agents get the GPUs that the job asked for", error.what());
    return {};
  }
}

Roster make_roster(const Plan& plan, slurm::Cluster& cluster, slurm::JobId job, int port) {
  if (port == 0) port = first_port(job, taken_ports());
  std::vector<std::string> names;
  for (const auto& node : plan.nodes) names.push_back(node.name);
  std::map<std::string, std::string> addresses;
  try {
    for (const auto& node : cluster.nodes(names)) addresses[node.name] = node.address;
  } catch (const Error& error) {
    log::warn("{}; node names serve as addresses", error.what());
  }
  Roster roster;
  roster.ranks_per_node = plan.ranks_per_node;
  roster.candidates = plan.leaders;
  roster.first_placement.resize(plan.active);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const auto& node = plan.nodes[i];
    const auto known = addresses.find(node.name);
    roster.nodes.push_back({node.name, known == addresses.end() ? node.name : known->second, port,
                            node.scalable_unit, 0, std::min(ports_per_agent, highest_port - port + 1)});
    if (node.slot >= 0) roster.first_placement[node.slot] = static_cast<int>(i);
    if (node.batch_host) roster.batch_host = static_cast<int>(i);
  }
  look_up_names(roster);
  return roster;
}

}  // namespace holdfast::launcher
