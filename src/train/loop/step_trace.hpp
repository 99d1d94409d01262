#pragma once
// Seeing steps work: the spans of compute and communication of chosen steps, as a file for chrome://tracing
// (or Perfetto), and a table of where the time went and how much communication was hidden behind compute.
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/write_queue.hpp"
#include "src/config/run_config.hpp"
#include "src/flight/recorder.hpp"
#include "src/tensor/profile.hpp"

namespace holdfast::train {

/// Where the time of some steps went, on one rank.
struct TimeTable {
  std::array<tensor::Profile::Totals, tensor::kinds_of_work> work{};
  double seconds = 0;        ///< wall clock
  double communicating = 0;  ///< the communication thread's collectives, overlaps counted once
  std::int64_t steps = 0;

  double waiting() const { return work[as_size(tensor::Work::waiting)].seconds; }
  /// Share of the communication during which compute did not wait.
  double hidden() const {
    return communicating <= 0 ? 1.0 : std::clamp(1.0 - waiting() / communicating, 0.0, 1.0);
  }
};
/// For people: a line per kind of work, seconds per step, share, GFLOP/s.
std::string to_text(const TimeTable& table);

/// A collective as the trace shows it.
struct WireSpan {
  std::string_view operation;
  std::string group;
  std::int64_t start_ns = 0, end_ns = 0;  ///< CLOCK_MONOTONIC
  std::int64_t bytes = 0;
};
/// Time covered by the spans, ns.
std::int64_t covered(std::vector<WireSpan> spans);
/// One JSON document: "traceEvents" of the compute thread (tid 0) and of each group (tid 1, ...).
std::string trace_json(int rank, const std::vector<tensor::Profile::Span>& compute,
                       const std::vector<WireSpan>& wire);

class StepTrace {
 public:
  /// Steps [first, first + count) of `settings`; files go to `folder`/rank-NNNNN.json, written by
  /// `queue`. `recorder` may be null: no spans of communication.
  StepTrace(const config::Trace& settings, std::filesystem::path folder, int rank, tensor::Profile& profile,
            const flight::FlightRecorder* recorder, WriteQueue& queue);
  /// Before the step that leads from `step` to `step` + 1.
  void begin(std::int64_t step);
  /// After it: `done` steps are done. After the last traced one the file is handed to the queue; rank 0
  /// says the table. A file that cannot be written costs the trace, not the run.
  void end(std::int64_t done);

 private:
  bool traced(std::int64_t step) const {
    return step >= settings_.first && step < settings_.first + settings_.count;
  }
  void drain();
  void finish();

  config::Trace settings_;
  std::filesystem::path folder_;
  int rank_;
  tensor::Profile& profile_;
  const flight::FlightRecorder* recorder_;
  WriteQueue& queue_;
  std::vector<WireSpan> wire_;
  std::uint64_t drained_ = 0;  ///< collectives of the recorder that were looked at
  TimeTable table_;
  Clock::time_point began_{};
  bool running_ = false;
};

}  // namespace holdfast::train
