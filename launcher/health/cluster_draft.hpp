#pragma once
// A cluster file (configs/clusters) from what a site tells of itself. Pure: `holdfast init` asks and writes.
#include "launcher/health/local_site.hpp"
#include "slurm/site.hpp"

namespace holdfast::launcher {

struct Draft {
  std::string name;                 ///< of the cluster, fit for a file name
  std::string text;                 ///< TOML with comments: what was found, what is guessed
  std::vector<std::string> doubts;  ///< what a person must look at, a sentence each; in the text, too
};

/// The nodes of one partition ("": SLURM's default, else the one with most nodes), as many as have its
/// commonest shape. Throws Error (usage) for a partition that is not there, (runtime) for a site without
/// nodes.
Draft draft_cluster(const slurm::SiteFacts& site, const LocalSite& local, const std::string& partition);

}  // namespace holdfast::launcher
