#pragma once
// Tells how the run gets on: in the job's own log, in words, and in SLURM's comment of the job. It waits
// neither for storage nor for SLURM, and nothing depends on it.
#include <memory>
#include <optional>
#include <string>

#include "launcher/report/progress_lines.hpp"
#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/loop.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class ProgressTeller {
 public:
  struct Setup {
    RunDir run;
    slurm::JobId job = 0;
    std::string allocation;  ///< as the event log calls it
    StatusFacts facts;       ///< what settings say
    int comment_s = 0;       ///< slurm.comment_s
  };
  /// Reads what is on record. Told is what comes after it.
  ProgressTeller(control::Loop& loop, slurm::Cluster& cluster, Setup setup);
  ProgressTeller(const ProgressTeller&) = delete;

  /// Tells the rest, and where this allocation has an outcome, what the run has done. Waits for storage.
  void finish();

 private:
  /// What is read of the record, in the thread of `reader_`, which may outlive this.
  class Record;
  struct Seen {
    StatusFacts facts;
    std::vector<LogEntry> events;
  };
  void look();
  void tell(const Seen& seen);
  void comment(const StatusFacts& facts);

  control::Loop& loop_;
  slurm::Cluster& cluster_;
  Setup setup_;
  std::shared_ptr<Record> record_;
  std::optional<report::ProgressLines> lines_;
  double began_at_;
  std::string commented_;              ///< the comment that SLURM has taken
  std::string commented_state_;        ///< what goes on, as it was told last
  std::optional<double> comment_at_;   ///< when it was sent the last one
  std::int64_t ended_attempts_ = 0;    ///< that the last comment knew of
  bool comment_is_ours_ = true;        ///< else somebody has written one, which stays
  control::Worker reader_, to_slurm_;  ///< last: their destructors wait
  control::Loop::Handle tick_;
};

}  // namespace holdfast::launcher
