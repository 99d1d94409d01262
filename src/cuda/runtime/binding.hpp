#pragma once
// Which CPUs and network cards are near a GPU, from sysfs, and what a rank does with that. The decisions are
// functions of a folder that looks like /sys and of plain lists; only bind_to() and the environment are
// touched, by who calls.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::cuda {

/// "0-3,8" as the kernel writes it; an Error (runtime) for anything else. And back.
std::vector<int> parse_cpus(std::string_view text);
std::string cpus_text(const std::vector<int>& cpus);

/// PCI addresses ("0000:3b:00.0") of NVIDIA's GPUs, ascending, also of those that this process may not use.
std::vector<std::string> gpus_of(const std::filesystem::path& sysfs);
/// Logical CPUs near a PCI device, ascending; empty when not known.
std::vector<int> near_cpus(const std::filesystem::path& sysfs, const std::string& bus);

/// Who needs CPUs on a node: the GPU of each user.
struct Users {
  std::vector<std::string> gpus;
  std::size_t me = 0;
};
/// Ranks of this node, when this rank sees their GPUs (`visible`, rank r uses number r modulo their number);
/// a rank that was given one of its own knows nothing of the others, and counts every GPU of the node as
/// used.
Users users_of(const std::vector<std::string>& visible, bool one_was_given, int local_rank, int local_ranks,
               const std::vector<std::string>& on_node);

/// The CPUs of user `me`, where users[i] are the CPUs near to user i's GPU: users with the same list share it
/// evenly, by whole cores (`sysfs` knows which logical CPUs are one). More users than cores: they share a
/// core.
std::vector<int> share_of(const std::filesystem::path& sysfs, const std::vector<std::vector<int>>& users,
                          std::size_t me);

/// The CPUs to bind to, of those `allowed` so far; empty: stay as it is. Who may not use all CPUs near its
/// GPU was given some by another (srun, a cgroup); it keeps those of them that are near.
std::vector<int> cpus_to_bind(const std::vector<int>& near, const std::vector<int>& share,
                              const std::vector<int>& allowed);

/// The RDMA devices nearest to a GPU: those with a port that is up (InfiniBand or RoCE) and the most PCI
/// bridges in common with it, at least the root; else those of its NUMA node. Ascending; "mlx5_3".
std::vector<std::string> near_nics(const std::filesystem::path& sysfs, const std::string& bus);
/// Those near to any GPU: what NCCL should use, and the same on all ranks of a node. Leaves out cards for
/// storage and administration where bridges tell them apart.
std::vector<std::string> gpu_nics(const std::filesystem::path& sysfs);

// Effects
/// Of the calling thread; empty when the kernel does not say.
std::vector<int> allowed_cpus();
/// The calling thread, and those it starts from now on. False when the kernel refused.
bool bind_to(const std::vector<int>& cpus);

}  // namespace holdfast::cuda
