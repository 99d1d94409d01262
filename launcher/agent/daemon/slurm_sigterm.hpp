#pragma once
// Whom SLURM has sent SIGTERM. When it ends a job or a step it signals the guardian, and the other processes
// of the step as its ProctrackType lets it. A rank gets SIGTERM once, so the agent sends it only to ranks
// that SLURM does not reach.
#include <sys/types.h>

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "launcher/agent/ranks/node_system.hpp"
#include "slurm/cluster.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class SlurmSigterm {
 public:
  /// `job`: "JOB.RESTARTS".
  SlurmSigterm(control::Loop& loop, std::shared_ptr<slurm::Cluster> cluster, std::string job,
               std::string node);
  /// The agent has got it, or slurms_sigterm() from its guardian. After both, SLURM signals every process of
  /// the step that it knows of; it is asked which ones these are here.
  void came(int signal);
  /// SLURM has been asked, and has not answered; for answer_limit at most.
  bool awaited() const { return signals_all() && !answered_; }
  static constexpr Millis answer_limit{4000};
  /// Where SLURM cannot be asked (in an image, say), it is taken to know all processes but those whose names
  /// have blanks.
  bool has_reached(pid_t pid, const NodeSystem& node) const;

 private:
  bool signals_all() const { return by_guardian_ && directly_; }

  std::shared_ptr<slurm::Cluster> cluster_;
  std::string job_, node_;
  control::Worker asker_;
  bool by_guardian_ = false, directly_ = false, asked_ = false, answered_ = false;
  std::optional<std::set<int>> known_;  ///< the processes of the job here, when it signalled them
};

}  // namespace holdfast::launcher
