#pragma once
// What a report says of a run: its run directory, read once.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/series.hpp"
#include "launcher/supervise/run_state.hpp"
#include "slurm/energy.hpp"
#include "src/base/run_dir.hpp"
#include "src/config/load.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher::report {

/// metrics.jsonl in short.
struct Metrics {
  Series loss, held_out, tokens_per_s, step_s;
  std::int64_t lines = 0, damaged = 0;
  std::int64_t without_loss = 0;  ///< steps whose loss was not finite
  std::int64_t lost = 0;          ///< steps whose line was never written
  double save_stall_s = 0;
  Series persist_s;                                   ///< seconds to write a checkpoint, as rank 0 saw it
  Series mfu, mfu_causal;                             ///< 0 to 1; empty: the devices' peak is not known
  double data_wait_s = 0;                             ///< of rank 0, all steps
  double host_peak_bytes = 0, device_peak_bytes = 0;  ///< of rank 0; 0: not known, or none of its own
  std::map<std::string, Series> loss_by_source;       ///< empty: there is but one
  std::map<std::string, Series> held_out_by_file;     ///< likewise
};
/// Takes one line without its end. `metrics` counts a line that cannot be read as damaged.
void take_line(Metrics& metrics, const std::string& line);
/// The same once it is parsed.
void take(Metrics& metrics, const nlohmann::json& line);

/// Where the metrics of the run are: its ranks write them, or report them to their agents.
std::filesystem::path metrics_of(const RunDir& run, const config::RankPromises& promises);
/// The newest whole line of a file of metrics; nothing: there is none yet. Throws Error.
std::optional<nlohmann::json> last_metrics_line(const std::filesystem::path& file);

struct Facts {
  std::string dir, name;
  std::int64_t steps = 0;  ///< train.steps; 0: only the program knows
  /// That differ from their defaults; `before` is the default. Here and below without what may be secret,
  /// also where the owner asks: a report is handed on.
  std::vector<config::SettingChange> settings;
  std::string all_settings;  ///< TOML
  std::vector<LogEntry> events;
  RunState state;         ///< replayed from them
  nlohmann::json result;  ///< fields of result.json; those of the file where it tells of this end of the run
  std::string now;        ///< what goes on, as `status` has it, if the run has not ended; "": nobody asked
  nlohmann::json plan;    ///< for the nodes that the job had, else that of the submission; null: none
  Metrics metrics;
  std::optional<slurm::Energy> energy;  ///< absent: SLURM was not asked
  std::vector<std::string> gaps;        ///< what could not be read, in sentences
};

/// Throws Error only when the settings cannot be read: all else that is missing or damaged is a gap.
Facts read_facts(const RunDir& run);

/// The jobs that the run had, each once, by its events.
std::vector<slurm::JobId> jobs_of(const std::vector<LogEntry>& events);

}  // namespace holdfast::launcher::report
