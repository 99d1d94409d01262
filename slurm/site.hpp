#pragma once
// SLURM's description of its site: partitions, nodes and their shapes, topology, settings, MPI plugins.
// `holdfast init` and `holdfast doctor` query it once; jobs use Cluster instead.
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::slurm {

struct Partition {
  std::string name;
  bool is_default = false, up = false;
  std::string time_limit;          ///< as SLURM writes it, for example "2-00:00:00" or "infinite"
  std::vector<std::string> nodes;  ///< in SLURM's order
};

/// A node as configured, not its present state.
struct NodeShape {
  std::string name;
  int sockets = 0, cores_per_socket = 0, threads_per_core = 0;
  std::int64_t memory_bytes = 0;
  std::string gres;       ///< for example "gpu:h100:8(S:0-1)"
  std::string gpu_model;  ///< "h100"; "": it has none, or it is not configured
  int gpus = 0;
  int cores() const { return sockets * cores_per_socket; }
  bool same_shape(const NodeShape& other) const {
    return cores() == other.cores() && gpus == other.gpus && gpu_model == other.gpu_model;
  }
};

/// Nodes that are near each other: a leaf switch of topology/tree, a block of topology/block, a ring or a
/// torus.
struct ScalableUnit {
  std::string name;
  std::vector<std::string> nodes;
};

struct SiteFacts {
  std::string version;  ///< "22.05.8"
  std::vector<Partition> partitions;
  std::vector<NodeShape> nodes;                 ///< each once
  std::vector<ScalableUnit> scalable_units;     ///< empty: no topology is configured
  std::vector<std::string> mpi;                 ///< plugins, for example pmix, pmi2
  std::map<std::string, std::string> settings;  ///< of `show config`: ClusterName, SlurmdTimeout, ...
  std::vector<std::string> unknown;             ///< the queries that failed, and why
  std::string setting(const std::string& name) const;
};

// Replies, read into plain data: pure. Lines that cannot be read are left out.
std::vector<Partition> read_partitions(std::string_view out);
std::vector<NodeShape> read_shapes(std::string_view out);
/// Leaf switches or blocks, in SLURM's order.
std::vector<ScalableUnit> read_topology(std::string_view out);
std::map<std::string, std::string> read_settings(std::string_view out);
/// The names of a list of MPI plugins: one a line, in the spelling of any release since 20.11.
std::vector<std::string> read_mpi_plugins(std::string_view out);
/// The partitions that a job with these arguments of sbatch may run in, with commas between; "": the default
/// one. SBATCH_PARTITION counts as for sbatch.
std::string asked_partitions(const std::vector<std::string>& arguments);
/// Why a job of `nodes` nodes can never start, as far as numbers of nodes decide: "it asks for 5 nodes, and
/// partition pod has 4". "": one of the `asked` partitions has as many, or it is not known.
std::string lack_of_nodes(const std::vector<Partition>& all, const std::string& asked, int nodes);
/// "h100" of "gpu:h100:8(S:0-1)"; "" when no model is named.
std::string gpu_model_in(std::string_view gres);

/// Runs SLURM's tools, each for at most `limit`. Throws Error when there is no SLURM here, or it does not
/// answer; queries that fail alone are listed in `unknown`.
SiteFacts probe_site(std::chrono::milliseconds limit);
/// ClusterName of slurm.conf; "" when SLURM does not say. Throws Error as probe_site.
std::string cluster_name(std::chrono::milliseconds limit);
/// Its partitions alone. Throws Error as probe_site.
std::vector<Partition> partitions(std::chrono::milliseconds limit);
/// Throws Error: usage when steps cannot be given this option ("--container-image"), which `plugin` ("pyxis")
/// would bring; else as probe_site.
void need_step_option(const std::string& option, const std::string& plugin, std::chrono::milliseconds limit);
/// Only the MPI plugins; throws Error as probe_site.
std::vector<std::string> mpi_plugins(std::chrono::milliseconds limit);

}  // namespace holdfast::slurm
