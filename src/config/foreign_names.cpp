#include "src/config/foreign_names.hpp"

#include <cctype>

namespace holdfast::config {
namespace {

std::string plain(const std::string& name) {
  std::string out;
  for (const unsigned char c : name)
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(c));
  return out;
}

}  // namespace

const std::vector<ForeignName>& foreign_names() {
  static const std::vector<ForeignName> names = {
      {"nnodes", "torchrun", "cluster.nodes for the active nodes and cluster.spares for those that wait"},
      {"nprocpernode", "torchrun", "cluster.ranks_per_node"},
      {"maxrestarts", "torchrun", "supervise.max_restarts"},
      {"monitorinterval", "torchrun", "supervise.heartbeat_ms"},
      {"rdzvbackend", "torchrun", "nothing: agents find each other through the run directory"},
      {"rdzvendpoint", "torchrun", "nothing: agents find each other through the run directory"},
      {"rdzvid", "torchrun", "nothing: agents find each other through the run directory"},
      {"masteraddr", "torchrun", "nothing: ranks are told; other programs get MASTER_ADDR"},
      {"masterport", "torchrun", "supervise.port for the agents; other programs get MASTER_PORT"},
      {"minreplicas", "PyTorchJob", "supervise.min_nodes, in nodes"},
      {"maxreplicas", "PyTorchJob", "cluster.nodes + cluster.spares, in nodes"},
      {"backofflimit", "PyTorchJob", "supervise.max_restarts"},
      {"activedeadlineseconds", "PyTorchJob", "slurm.time"},
      {"workers", "PyTorchJob", "cluster.nodes"},
      {"minnodes", "a node range", "supervise.min_nodes"},
      {"maxnodes", "a node range", "cluster.nodes + cluster.spares"},
      {"ntaskspernode", "sbatch", "cluster.ranks_per_node"},
      {"jobname", "sbatch", "run.name"},
      {"rankheartbeattimeout", "NVRx", "supervise.hang_factor and supervise.hang_floor_s"},
      {"maxnoprogresscycles", "NVRx", "supervise.max_without_checkpoint"},
  };
  return names;
}

std::string foreign_suggestion(const std::string& key) {
  for (const auto& known : foreign_names())
    if (plain(key) == known.name) return std::string(known.whose) + "'s " + key + " is here " + known.answer;
  return "";
}

}  // namespace holdfast::config
