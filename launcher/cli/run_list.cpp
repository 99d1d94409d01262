#include "launcher/cli/run_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

/// The last step that it took; -1: none.
std::int64_t step_of(const ListedRun& run) {
  return run.facts && run.facts->last_step ? typed<std::int64_t>(*run.facts->last_step, "step").value_or(-1)
                                           : -1;
}

std::string steps_in_words(const ListedRun& run) {
  if (!run.facts || step_of(run) < 0) return "-";
  return run.facts->steps ? fmt::format("{} of {}", step_of(run), *run.facts->steps)
                          : std::to_string(step_of(run));
}

std::string loss_in_words(const ListedRun& run) {
  if (!run.facts || !run.facts->last_step) return "-";
  const auto loss = run.facts->last_step->find("loss");
  return loss != run.facts->last_step->end() && loss->is_number() ? fmt::format("{:.4g}", loss->get<double>())
                                                                  : "-";
}

using Row = std::array<std::string, 6>;
Row row_of(const ListedRun& run) {
  return {run.facts ? run.facts->name : run.path.filename().string(),
          run.job ? std::to_string(run.job->id) : "-",
          steps_in_words(run),
          loss_in_words(run),
          state_of(run),
          run.path.string()};
}

}  // namespace

std::string state_of(const ListedRun& run) {
  if (!run.facts) return "cannot be read";
  return headline(*run.facts);
}

std::string list_text(const std::vector<ListedRun>& runs) {
  std::vector<Row> rows = {{"NAME", "JOB", "STEP", "LOSS", "STATE", "RUN"}};
  for (const auto& run : runs) rows.push_back(row_of(run));
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) out += fmt::format("{:<{}}  ", row[i], widths[i]);
    out += row.back() + "\n";
  }
  return out;
}

json list_json(const std::vector<ListedRun>& runs) {
  json list = json::array();
  for (const auto& run : runs) {
    json one = {{"run", run.path.string()}, {"state", state_of(run)}};
    if (run.facts)
      one.update(
          {{"name", run.facts->name}, {"steps", run.facts->steps ? json(*run.facts->steps) : json(nullptr)}});
    if (step_of(run) >= 0) one["step"] = step_of(run);
    if (run.job)
      one["job"] = {{"id", run.job->id},
                    {"state", run.job->state_text},
                    {"reason", run.job->reason},
                    {"start", run.job->start ? json(*run.job->start) : json()}};
    list.push_back(std::move(one));
  }
  return {{"schema_version", 1}, {"runs", std::move(list)}};
}

}  // namespace holdfast::launcher
