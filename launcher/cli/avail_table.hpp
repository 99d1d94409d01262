#pragma once
// What `holdfast avail` prints. Pure.
#include <nlohmann/json.hpp>
#include <string>

#include "slurm/availability.hpp"

namespace holdfast::launcher {

/// `partition`: only this one; empty: all. Throws Error (usage) when SLURM has told of no such partition.
std::string avail_text(const slurm::Availability& now, const std::string& partition);
nlohmann::json avail_json(const slurm::Availability& now, const std::string& partition);

}  // namespace holdfast::launcher
