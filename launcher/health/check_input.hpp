#pragma once
// The inputs of the checks of a node: the folders that they read, and the state that they expect. Tests use
// folders of their own as roots.
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/health/finding.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/nvml/library.hpp"

namespace holdfast::launcher {

struct Roots {
  std::filesystem::path sys = "/sys", proc = "/proc", shm = "/dev/shm", kernel_log = "/dev/kmsg";
  std::string nvml = holdfast::nvml::default_library;  ///< library or path, for dlopen
};

/// How much is checked: fast disturbs no job and takes milliseconds; normal also times disks and reads the
/// versions of programs; full writes more data.
enum class Depth { fast, normal, full };

struct Expected {
  std::optional<config::ClusterFacts> cluster;      ///< nothing: missing parts cannot be detected
  std::vector<std::filesystem::path> paths;         ///< folders that the job will use; none: /tmp is checked
  std::vector<std::filesystem::path> shared_files;  ///< files that another node has created in them
  std::int64_t shm_bytes = 0;  ///< bytes that the ranks of a node will use in /dev/shm; 0: unknown
  Depth depth = Depth::normal;

  bool gpus() const { return cluster && cluster->gpu != "none"; }
  /// RDMA devices that the cluster file names.
  bool nics() const;
};

/// The text of a small file in /sys or /proc, without white space at its end; nothing when it cannot be read.
std::optional<std::string> read_line(const std::filesystem::path& file);
std::optional<std::int64_t> read_number(const std::filesystem::path& file);
/// The number at the start of a text.
std::optional<double> leading_number(const std::string& text);

/// One check: its name and its function, which may hang or crash: see run_guarded.
struct Check {
  std::string name;
  std::function<std::vector<Finding>()> run;
};

}  // namespace holdfast::launcher
