#pragma once
// How a job goes back into the queue, for other nodes: users cannot drain a node, but a job can exclude
// nodes. Who decides it, and who asks, stands in launcher/job/requeue.hpp.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "slurm/cluster.hpp"

namespace holdfast::slurm {

/// So long a job does without a node that Holdfast has excluded: one that was repaired, or was only thought
/// to have failed, is of use again. It comes back at the first requeue after that time.
constexpr double exclusion_s = 24 * 3600;

/// The nodes that Holdfast has excluded for a job, and since when (Unix seconds). All others that the job
/// excludes are its owner's, and stay; SLURM has one list for both.
using OwnExclusions = std::map<std::string, double>;
/// Those of a job that begins again: of the nodes that it excludes now, those `known` before, and those that
/// were to be excluded at its requeue. Pure.
OwnExclusions own_exclusions(const OwnExclusions& known, const std::vector<std::string>& excluded,
                             const std::vector<std::string>& to_exclude, double now);
/// Those that were excluded long ago. Pure.
std::vector<std::string> expired(const OwnExclusions& own, double now);
/// None when the file is absent, of another job, or cannot be read.
OwnExclusions read_exclusions(const std::filesystem::path& file, JobId job);
void write_exclusions(const std::filesystem::path& file, JobId job, const OwnExclusions& own);

struct Exclusion {
  bool changes = false;            ///< the list of the job
  std::vector<std::string> nodes;  ///< the new list, in SLURM's order
  std::string why_not;             ///< why failed nodes were not excluded; "": they are excluded
};
/// The failed nodes and those that the job excludes already, without `returning` ones. No failed node when a
/// job of `wanted` nodes could then never start: SLURM lets such a job wait forever. Pure.
Exclusion exclusion(const OtherNodes& around, const std::vector<std::string>& failed, int wanted,
                    const std::vector<std::string>& returning = {});

/// What the next run of a job needs of its nodes.
struct NextNodes {
  int wanted = 1;                           ///< so many
  std::vector<std::string> failed = {};     ///< not these
  std::vector<std::string> doubtful = {};   ///< nor these, if there are enough others
  std::vector<std::string> returning = {};  ///< these may be among them again
};
/// Requeues a job and, while it is pending, changes its list of excluded nodes as exclusion() computes it.
/// Nothing where SLURM preempts the job and requeues it itself. Throws Error when the job could not be
/// requeued; an exclusion that fails is a warning in the log.
void requeue_elsewhere(Cluster& cluster, JobId job, const NextNodes& next);

/// A command for an administrator, as a line to paste: "scontrol update nodename=dgx003 state=drain
/// reason='...'".
std::string drain_line(const std::string& node, const std::string& reason);

}  // namespace holdfast::slurm
