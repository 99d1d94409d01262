#pragma once
// Checks whether this node is fit to train: spares while they wait, and suspects. Two programs run beside the
// loop: the doctor's fast checks each time, the numerics probe once. The probe also brings the trainer's
// program and the entries of the run directory into memory, so that a spare starts faster when it is
// promoted.
#include <functional>
#include <string>
#include <vector>

#include "src/base/run_dir.hpp"
#include "src/base/subprocess.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"
#include "src/control/message.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class NodeChecker {
 public:
  NodeChecker(control::Loop& loop, RunDir run, const config::ClusterFacts& cluster, const config::Rank& rank,
              int ranks_per_node);
  /// `then` gets the result within seconds, in the loop's thread; with `numerics` once more when the probe
  /// has run, unless it has before. A call while a check is running is dropped.
  void check(bool numerics, std::function<void(const control::NodeHealth&)> then);

 private:
  void prepare(control::NodeHealth health, std::function<void(const control::NodeHealth&)> then);

  RunDir run_;
  std::vector<std::string> environment_;  ///< the ranks', as far as their results depend on it
  bool probes_;                           ///< the arithmetic of the ranks is known
  std::string numerics_;                  ///< "": not known yet
  bool busy_ = false;
  control::Worker worker_;
};

/// Reads the output of `holdfast doctor --json`. `trouble`: why there is none; "": there should be one.
control::NodeHealth read_health(const std::string& json, const std::string& trouble);
/// The hash that `holdfast-train --probe` prints: 16 hex digits at the start of a line; "": none.
std::string read_probe(const std::string& text);

}  // namespace holdfast::launcher
