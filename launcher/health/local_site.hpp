#pragma once
// Facts of a cluster that SLURM does not know, from this node: its GPUs, the NIC nearest to each, its network
// and its shared file systems.
#include "launcher/health/check_input.hpp"

namespace holdfast::launcher {

struct NetworkMount {
  std::string path, type;
};

struct LocalSite {
  std::string node;                         ///< SLURM's name of it; "" on a login node
  int gpus = 0;                             ///< that the driver sees
  std::string gpu_name;                     ///< the driver's, for example "NVIDIA H100 80GB HBM3"
  std::int64_t gpu_memory_bytes = 0;        ///< of one
  std::vector<config::GpuFacts> gpu_facts;  ///< by GPU, with the nearest NIC; empty without GPUs
  std::vector<std::string> other_nics;  ///< RDMA devices that are not nearest to any GPU: storage, in-band
  std::string interface;                ///< towards other nodes; "": not found
  std::int64_t shm_bytes = 0;           ///< size of /dev/shm; 0: there is none
  std::vector<NetworkMount> shared;     ///< network mounts
  std::string mpi;                      ///< mpirun's first line; "": none in PATH
};

/// Gives each GPU the NIC that shares most of its PCI path, no NIC twice; GPUs in the order given, which is
/// the driver's. Paths are those of /sys: "/sys/devices/pci0000:15/0000:15:01.0/.../0000:18:00.0".
std::vector<std::string> nearest_nics(const std::vector<std::string>& gpu_paths,
                                      const std::vector<std::pair<std::string, std::string>>& nic_paths);

/// `towards`: another node, to find the interface by; may be empty.
LocalSite probe_local_site(const Roots& roots, const std::string& node, const std::string& towards);

}  // namespace holdfast::launcher
