#pragma once
// The nodes of an allocation as supervision sees them: indices instead of names, and the facts that it needs.
#include <string>
#include <vector>

#include "launcher/plan/rank_work.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/channel.hpp"

namespace holdfast::launcher {

struct Roster {
  std::string job;  ///< job id and restart count: different for each allocation
  struct Node {
    std::string name;
    std::string address;        ///< host name or IP address under which other nodes reach its agent
    int port = 0;               ///< the first that its agent tries
    std::string scalable_unit;  ///< for the choice of a spare
    int past_failures = 0;      ///< in earlier jobs, from the ledger
    int ports = 1;              ///< its agent listens on one of so many, from `port` on
    std::vector<std::string> ip_addresses =
        {};  ///< of `address`, if that is a name, as the batch host knows it

    /// What programs on other nodes connect to: no name, where its address is known.
    const std::string& for_programs() const { return ip_addresses.empty() ? address : ip_addresses.front(); }
    control::TcpAddress agent() const { return {address, port, ports, ip_addresses}; }
  };
  std::vector<Node> nodes;
  std::vector<int> first_placement;  ///< slot -> node, as planned
  std::vector<int> candidates;       ///< nodes in the order in which they may lead
  int batch_host = -1;               ///< node that runs the batch script; -1: none of them
  int ranks_per_node = 1;
  RankWork work = {};  ///< of each rank, as planned

  int slots() const { return static_cast<int>(first_placement.size()); }
  int world() const { return slots() * ranks_per_node; }
  int node_called(const std::string& name) const {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].name == name) return static_cast<int>(i);
    return -1;
  }
};

/// nodes.json, written by `holdfast run` before the agents start.
std::string to_json_text(const Roster& roster);
/// Throws Error when it is missing or damaged.
Roster read_roster(const RunDir& run);

}  // namespace holdfast::launcher
