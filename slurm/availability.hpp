#pragma once
// What a job could get now, partition by partition: for `holdfast avail`.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/accounts.hpp"
#include "slurm/site.hpp"

namespace holdfast::slurm {

/// What a node does, for a job that wants all of it.
enum class NodeUse {
  idle,
  reserved,      ///< idle, for those whom its reservation names
  powered_down,  ///< idle, and starts when a job gets it
  busy,          ///< jobs have it or a part of it, or it is planned for one
  away           ///< down, drained, or not answering
};

/// A node in one of its partitions.
struct PresentNode {
  std::string name, partition;
  bool is_default = false, partition_up = false;
  std::string time_limit;  ///< of the partition, as SLURM writes it
  NodeUse use = NodeUse::away;
  int gpus = 0;
  std::string gpu_model;  ///< "": none, or it is not configured
};

struct Reservation {
  std::string name;
  bool active = false;
  std::optional<double> start, end;  ///< Unix seconds
  std::vector<std::string> nodes;
  std::string users, accounts;  ///< for whom, as SLURM writes it; "": nobody by this
};

struct Availability {
  std::vector<PresentNode> nodes;  ///< in SLURM's order
  std::vector<ScalableUnit> units;
  std::vector<Reservation> reservations;
  Accounts accounts;
  std::vector<std::string> unknown;  ///< the queries that failed, and why
};

/// The present state of a node, as sinfo's %T writes it. Pure.
NodeUse node_use(std::string_view state);

// Replies, read into plain data: pure. Lines that cannot be read are left out.
std::vector<PresentNode> read_present_nodes(std::string_view out);
std::vector<Reservation> read_reservations(std::string_view out);

/// Asks SLURM, each question for at most `limit`. `user`: whose accounts and limits. Throws Error when there
/// is no SLURM here, or it does not tell its nodes; other questions that fail are in `unknown`.
Availability availability(const std::string& user, std::chrono::milliseconds limit);

}  // namespace holdfast::slurm
