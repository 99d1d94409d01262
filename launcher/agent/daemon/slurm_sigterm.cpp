#include "launcher/agent/daemon/slurm_sigterm.hpp"

#include <signal.h>

#include <utility>

#include "launcher/agent/daemon/guardian.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

SlurmSigterm::SlurmSigterm(control::Loop& loop, std::shared_ptr<slurm::Cluster> cluster, std::string job,
                           std::string node)
    : cluster_(std::move(cluster)), job_(std::move(job)), node_(std::move(node)), asker_(loop) {}

/// That SLURM has signalled this agent does not mean that it has signalled the ranks: it knows no process
/// whose name it cannot read (ProctrackType=proctrack/linuxproc), or that has left its group
/// (proctrack/pgid).
void SlurmSigterm::came(int signal) {
  by_guardian_ = by_guardian_ || signal == slurms_sigterm();
  directly_ = directly_ || signal == SIGTERM;
  if (!signals_all() || std::exchange(asked_, true)) return;
  asker_.ask(
      [cluster = cluster_, job = std::stoll(job_), node = node_]() -> std::optional<std::set<int>> {
        try {
          return cluster->processes_here(job, node, answer_limit / 2);
        } catch (const std::exception& error) {
          log::warn(
              "it is not known to which processes SLURM has sent SIGTERM; this agent sends it to ranks with "
              "a blank in their names alone, which SLURM may overlook: {}",
              error.what());
          return std::nullopt;
        }
      },
      [this](std::optional<std::set<int>> pids) {
        known_ = std::move(pids);
        answered_ = true;
      });
}

bool SlurmSigterm::has_reached(pid_t pid, const NodeSystem& node) const {
  if (!signals_all()) return false;
  if (known_) return known_->contains(pid);
  const auto facts = node.process(pid);
  return facts && !facts->blank_in_name;
}

}  // namespace holdfast::launcher
