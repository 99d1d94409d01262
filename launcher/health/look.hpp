#pragma once
// What the checks of a node look at, and what they expect there. Tests put folders of their own in the roots'
// place.
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
  std::filesystem::path sys = "/sys", proc = "/proc", shm = "/dev/shm";
  std::string nvml = holdfast::nvml::default_library;  ///< library or path, for dlopen
};

/// How much is looked at: fast disturbs nobody and takes milliseconds; normal also times disks and asks
/// programs for their versions; full writes more.
enum class Depth { fast, normal, full };

struct Expected {
  std::optional<config::ClusterFacts> cluster;   ///< nothing: what is missing cannot be told
  std::vector<std::filesystem::path> paths;      ///< folders that the job will use; none: /tmp is looked at
  std::vector<std::filesystem::path> witnesses;  ///< files that another node has made in them
  std::int64_t shm_bytes = 0;                    ///< what a node's ranks will keep in /dev/shm; 0: not known
  Depth depth = Depth::normal;

  bool gpus() const { return cluster && cluster->gpu != "none"; }
  /// RDMA devices that the cluster file names.
  bool nics() const;
};

/// A file of few bytes in /sys or /proc, without white space at its end; nothing when it cannot be read.
std::optional<std::string> read_line(const std::filesystem::path& file);
std::optional<std::int64_t> read_number(const std::filesystem::path& file);
/// The number that a text begins with.
std::optional<double> leading_number(const std::string& text);

/// One check: what it is called, and how to look. It may hang or crash: see run_guarded.
struct Check {
  std::string name;
  std::function<std::vector<Finding>()> look;
};

}  // namespace holdfast::launcher
