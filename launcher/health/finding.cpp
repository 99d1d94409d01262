#include "launcher/health/finding.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
constexpr std::array fitness_words = {"ok", "warning", "critical", "unknown"};  // in the order of Fitness
constexpr std::size_t line_limit = 500;                                         // bytes of what a spare says

bool any(const std::vector<Finding>& findings, Fitness fitness) {
  return std::any_of(findings.begin(), findings.end(), [&](const auto& f) { return f.fitness == fitness; });
}

}  // namespace

const char* word_of(Fitness fitness) { return fitness_words[static_cast<std::size_t>(fitness)]; }

std::optional<Fitness> fitness_called(std::string_view word) {
  const auto it = std::find(fitness_words.begin(), fitness_words.end(), word);
  if (it == fitness_words.end()) return std::nullopt;
  return static_cast<Fitness>(it - fitness_words.begin());
}

Fitness worst(const std::vector<Finding>& findings) {
  for (const auto fitness : {Fitness::critical, Fitness::warning, Fitness::ok})
    if (any(findings, fitness)) return fitness;
  return Fitness::unknown;
}

control::NodeHealth health_of(const std::vector<Finding>& findings, const std::string& numerics) {
  control::NodeHealth health;
  health.fitness = worst(findings);
  health.numerics = numerics;
  if (health.fitness == Fitness::ok) return health;
  for (const auto& finding : findings) {
    if (finding.fitness != health.fitness) continue;
    const std::string part = finding.check + ": " + finding.says;
    if (!health.why.empty() && health.why.size() + part.size() > line_limit) {
      health.why += "; ...";
      break;
    }
    health.why += (health.why.empty() ? "" : "; ") + part;
  }
  return health;
}

nlohmann::json to_json(const Finding& finding) {
  return {{"check", finding.check},
          {"fitness", word_of(finding.fitness)},
          {"says", finding.says},
          {"advice", finding.advice}};
}

std::optional<Finding> finding_from(const nlohmann::json& j) {
  if (!j.is_object()) return std::nullopt;
  for (const char* key : {"check", "fitness", "says", "advice"})
    if (!j.contains(key) || !j[key].is_string()) return std::nullopt;
  const auto fitness = fitness_called(j["fitness"].get<std::string>());
  if (!fitness) return std::nullopt;
  return Finding{j["check"], *fitness, j["says"], j["advice"]};
}

}  // namespace holdfast::launcher
