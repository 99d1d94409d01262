#pragma once
// The result of a check of a node. The degrees of fitness are those of monitoring plugins, which prologs and
// HealthCheckProgram expect: 0 ok, 1 warning, 2 critical, 3 unknown.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/control/message.hpp"

namespace holdfast::launcher {

struct Finding {
  std::string check;  ///< "gpu.count", "disk.space", "nic.state", ...
  control::NodeHealth::Fitness fitness = control::NodeHealth::Fitness::unknown;
  std::string says;    ///< what was found, with numbers and units
  std::string advice;  ///< "" for ok
};

/// The worst of all: critical, then warning, then unknown (only when nothing else was found), then ok.
control::NodeHealth::Fitness worst(const std::vector<Finding>& findings);
/// The report of a node to the leader: the worst findings in one line.
control::NodeHealth health_of(const std::vector<Finding>& findings, const std::string& numerics);

nlohmann::json to_json(const Finding& finding);
/// Nothing when `j` is not a finding.
std::optional<Finding> finding_from(const nlohmann::json& j);

}  // namespace holdfast::launcher
