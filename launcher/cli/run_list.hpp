#pragma once
// The table of `holdfast ls`. Pure.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/status_view.hpp"
#include "slurm/cluster.hpp"

namespace holdfast::launcher {

struct ListedRun {
  std::filesystem::path path;
  std::optional<StatusFacts> facts;  ///< nothing: it cannot be read; with the job, when SLURM has answered
  std::optional<slurm::OwnJob> job;  ///< that waits or runs
};

/// What goes on, in a few words.
std::string state_of(const ListedRun& run);
std::string list_text(const std::vector<ListedRun>& runs);
nlohmann::json list_json(const std::vector<ListedRun>& runs);

}  // namespace holdfast::launcher
