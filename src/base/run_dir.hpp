#pragma once
// Every name in a run directory (contract 1) is here and nowhere else; names of checkpoints are in
// checkpoint/index/catalog.hpp.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast {

/// Where runs lie whose run.dir is not set, by their names; relative to the working folder.
constexpr std::string_view runs_folder = "runs";

/// On the shared file system, owned by one job at a time. Its group may read it where the umask says so, but
/// for the secret and the settings as they are.
struct RunDir {
  std::filesystem::path path;

  std::filesystem::path config() const { return path / "config.toml"; }  ///< 0600, resolved settings
  /// The same for the group: values that may be secret are not shown.
  std::filesystem::path settings() const { return path / "settings.toml"; }
  /// NNNN.toml, 0600: the settings of each job of the run, by its first term.
  std::filesystem::path configs() const { return path / "config"; }
  std::filesystem::path model() const { return path / "model.toml"; }      ///< resolved model file
  std::filesystem::path cluster() const { return path / "cluster.toml"; }  ///< resolved cluster file
  std::filesystem::path plan() const { return path / "plan.json"; }  ///< hypothetical and real placement
  std::filesystem::path script() const { return path / "job.sbatch"; }
  std::filesystem::path secret() const { return path / "secret"; }     ///< 0600, 64 hex digits
  std::filesystem::path owner() const { return path / "owner.json"; }  ///< the job that owns the directory
  /// Nodes that Holdfast has excluded for the job; see slurm/requeue.hpp.
  std::filesystem::path excluded() const { return path / "excluded.json"; }
  std::filesystem::path bare_lock() const { return path / "bare.lock"; }  ///< held by a run without SLURM
  std::filesystem::path nodes() const {
    return path / "nodes.json";
  }                                                              ///< names, addresses and port of the agents
  std::filesystem::path terms() const { return path / "term"; }  ///< NNNN, created O_EXCL by who leads
  std::filesystem::path events() const { return path / "events"; }  ///< NNNN.jsonl: one file per term
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  /// What a program with the client reports, by the agent of rank 0.
  std::filesystem::path reported_metrics() const { return logs() / "metrics.jsonl"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  /// Steps that have a checkpoint, of a run without agents; under agents the events say it.
  std::filesystem::path durable() const { return path / "durable.json"; }
  std::filesystem::path logs() const { return path / "logs"; }
  std::filesystem::path result() const { return path / "result.json"; }
  std::filesystem::path algorithms() const { return path / "tuning.json"; }
  std::filesystem::path hold() const { return path / "hold"; }  ///< see src/train/loop/step_hold.hpp
};

// Outside of it, in folders of control::PrivatePlace:

/// The memory of a node, where every user can write.
constexpr const char* node_memory = "/dev/shm";
/// Where a rank's collectives are recorded: in the scratch folder of its agent.
std::string flight_record_file(int attempt, int rank);
/// The attempt of a flight record, by the name of its file; nothing for any other name.
std::optional<int> attempt_of_flight_record(std::string_view name);

}  // namespace holdfast
