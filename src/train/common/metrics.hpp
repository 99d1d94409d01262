#pragma once
// metrics.jsonl: one line per step, written by logical rank 0.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/write_queue.hpp"

namespace holdfast::train {

struct SavingMetrics {
  std::int64_t every = 0;                           ///< steps between saves now
  std::int64_t begun = 0, skipped = 0, failed = 0;  ///< since the start of this attempt, by rank 0
  double stall_s = 0;                               ///< that training waited for them
  double persist_s = 0;                             ///< of the save that settled last, beside training
  std::int64_t bytes = 0;                           ///< of rank 0's shard
  double overhead = 0, expected_loss = 0;           ///< parts of the time, see interval.hpp; 0: not known yet
};

/// Parts of the devices' peak, see config::TokenFlops.
struct Utilization {
  double palm = 0, causal = 0;
};

struct StepMetrics {
  std::int64_t step = 0;  ///< optimizer steps done, so the first line says 1
  double loss = 0;        ///< mean over the valid tokens of the step
  double gradient_norm = 0, lr = 0;
  std::int64_t tokens = 0;  ///< consumed by the run so far
  double tokens_per_s = 0, step_s = 0;
  std::uint64_t allocations = 0;        ///< own ones during the step; none after the first
  std::int64_t wire_bytes = 0;          ///< that rank 0 sent since the gradients of the step before
  double save_stall_s = 0;              ///< that this step waited for saves and snapshots
  double data_wait_s = 0;               ///< that rank 0 waited for the step's micro-batches
  std::int64_t host_peak_bytes = 0;     ///< memory of rank 0's process, at most so far
  std::int64_t device_peak_bytes = 0;   ///< the same of its device's memory; 0: that is the host's
  std::optional<Utilization> mfu = {};  ///< where the peak of the devices is known
  std::vector<std::pair<std::string, double>> loss_by_source = {};  ///< where there are several: mean loss
  /// Where the step was evaluated: mean loss of each held-out file, in their order.
  std::vector<std::pair<std::string, double>> held_out = {};
  std::optional<SavingMetrics> saving = {};  ///< where a save began after the step
};

class Metrics {
 public:
  /// Keeps the lines of steps up to `step`; later ones, torn ones and strange ones go. Steps between the last
  /// line that is kept and `step` get lines with loss null and "lost": true. The file is replaced, not cut: a
  /// rank of an earlier attempt that is still alive somewhere goes on writing to a file that nobody sees.
  /// Reads and writes at once; what follows is written by `queue`, which must outlive this.
  Metrics(std::filesystem::path path, std::int64_t step, int attempt, WriteQueue& queue);

  /// Never waits for the file. A line that cannot be written (full disk), or for which the queue has no room,
  /// is lost, with a warning; training is worth more than its record.
  void append(const StepMetrics& step);
  /// Behind the lines so far: keeps those of steps up to `step` alone, as the constructor does.
  void roll_back(std::int64_t step);
  /// Loss of the last step, if there is one.
  std::optional<double> last_loss() const { return last_loss_; }
  /// Seconds of the steps whose lines were kept at the start.
  double seconds_before() const { return seconds_before_; }

 private:
  struct File;
  std::shared_ptr<File> file_;  ///< shared with the queue's thread, which alone uses it after the start
  WriteQueue& queue_;
  int attempt_;
  std::optional<double> last_loss_;
  double seconds_before_ = 0;
  std::int64_t dropped_ = 0;  ///< lines in a row, for which there was no room
};

}  // namespace holdfast::train
