#pragma once
// Makes a cluster file (configs/clusters) from the facts of a site. Pure: `holdfast init` gathers them and
// writes it.
#include "launcher/health/local_site.hpp"
#include "slurm/site.hpp"

namespace holdfast::launcher {

struct Draft {
  std::string name;                   ///< of the cluster, fit for a file name
  std::string text;                   ///< TOML with comments on what was found and what is guessed
  std::vector<std::string> to_check;  ///< what the user must check, a sentence each; in the text, too
};

/// Takes the nodes of one partition ("": SLURM's default, else the one with most nodes) that have its most
/// common shape. Throws Error (usage) for a partition that does not exist, (runtime) for a site without
/// nodes.
Draft draft_cluster(const slurm::SiteFacts& site, const LocalSite& local, const std::string& partition);

}  // namespace holdfast::launcher
