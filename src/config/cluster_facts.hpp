#pragma once
// What the planner knows of a cluster: configs/clusters/*.toml.
#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::config {

/// One GPU of a node and the NIC nearest to it.
struct GpuFacts {
  int gpu = 0;
  std::string nic;     ///< RDMA device, for example mlx5_0; empty: none
  std::string netdev;  ///< its network interface
  int numa = 0;
  int rail = 0;  ///< leaf switch of the scalable unit that this NIC hangs on
  bool operator==(const GpuFacts&) const = default;
};

struct ScalableUnit {
  std::string name;
  std::string nodes;  ///< hostlist, for example dgx[001-032]
  bool operator==(const ScalableUnit&) const = default;
};

struct ClusterFacts {
  std::string name, description;
  std::string gpu = "none";  ///< model name, for example h100
  int gpus_per_node = 0;
  std::int64_t gpu_memory_bytes = 0;  ///< of one GPU; on CPU-only clusters the share of one rank
  int cpus_per_node = 1;
  std::int64_t node_memory_bytes = 0;  ///< host memory of one node; 0: unknown
  std::int64_t node_shm_bytes = 0;     ///< size of /dev/shm of one node; 0: unknown
  double nic_bytes_s = 0;              ///< of one GPU's NIC, in one direction; 0: unknown
  std::vector<ScalableUnit> scalable_units;
  std::vector<GpuFacts> gpus;  ///< gpus_per_node of them
  double storage_read_bytes_s = 0,
         storage_write_bytes_s = 0;      ///< whole file system, bytes per second; 0: unknown
  std::vector<std::string> shared;       ///< folders that all nodes and this machine see; none: not known
  double node_mttf_hours = 0;            ///< mean time to failure of one node; 0: unknown
  std::string ledger;                    ///< folder where failures of nodes are kept across jobs; "": none
  std::string gpu_job_mapping;           ///< folder for dcgm-exporter's --hpc-job-mapping-dir; "": none
  std::string control_interface;         ///< network interface of MPI over TCP
  std::vector<std::string> environment;  ///< "NAME=value" every rank gets (NCCL_*, UCX_*, OMPI_MCA_*)
  bool operator==(const ClusterFacts&) const = default;
};

}  // namespace holdfast::config
