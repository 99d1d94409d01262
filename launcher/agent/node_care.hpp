#pragma once
// Is this node fit to train? Asked of spares while they wait, and of suspects. Two programs answer, beside
// the loop: the doctor's fast set each time, the numerics probe once. The probe also brings the trainer's
// program and the run directory's entries into memory: a spare that is promoted starts warm.
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

class NodeCare {
 public:
  NodeCare(control::Loop& loop, RunDir run, const config::ClusterFacts& cluster, const config::Rank& rank,
           int ranks_per_node);
  /// `then` gets the answer within seconds, in the loop's thread. A question while one is being answered is
  /// dropped: its answer is on the way.
  void check(std::function<void(const control::NodeHealth&)> then);

 private:
  RunDir run_;
  std::vector<std::string> environment_;  ///< the ranks', as far as it decides how they compute
  bool probes_;                           ///< the ranks are ours
  std::string numerics_;                  ///< "": not known yet
  bool busy_ = false;
  control::Worker worker_;
};

/// What `holdfast doctor --json` has said. `trouble`: why there is nothing to read; "": there should be.
control::NodeHealth read_health(const std::string& json, const std::string& trouble);
/// The hash that `holdfast-train --probe` prints: 16 hex digits at the start of a line; "": none.
std::string read_probe(const std::string& text);

}  // namespace holdfast::launcher
