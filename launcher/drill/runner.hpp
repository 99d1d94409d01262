#pragma once
// Runs a drill, case by case: submits, watches, injects, compares. All that it does to a cluster goes through
// a Testbed.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launcher/drill/case_report.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {

/// Where a drill takes place: a cluster, and the injectors in it.
class Testbed {
 public:
  virtual ~Testbed() = default;
  virtual double now() = 0;  ///< Unix seconds
  virtual void wait(Millis duration) = 0;
  /// Before and after each case: makes all nodes work and be free. Throws Error when it cannot.
  virtual void heal() = 0;
  /// Submits the job with these settings as the run `name`; a second time: to continue it. Returns the job's
  /// id.
  virtual std::string submit(const std::string& name, const std::vector<std::string>& sets) = 0;
  /// The run's directory, as the report names it.
  virtual std::string run_path(const std::string& name) = 0;
  /// The run that was just submitted lasts until it is released: no step takes less than `least_step_s`, and
  /// the last one is not taken, for `longest_s` at most (src/train/loop/step_hold.hpp).
  virtual void hold(const std::string& name, double least_step_s, double longest_s) = 0;
  virtual void release(const std::string& name) = 0;
  virtual RunView view(const std::string& name) = 0;
  /// What SLURM says of the job. leaving: it is over, but some nodes do not answer; unknown: SLURM does not
  /// answer.
  enum class Job { unknown, waiting, running, leaving, gone };
  virtual Job job(const std::string& id) = 0;
  /// Lets a requeued job start now, where we may.
  virtual void start_now(const std::string& id) = 0;
  virtual void cancel(const std::string& id) = 0;
  /// Injects a fault, or undoes it; returns the moment in Unix seconds. Throws Error when it cannot.
  virtual double inject(const ChosenFault& what, const std::string& name, const std::string& id) = 0;
  /// Are the metrics' steps 1 to `steps`, one line each?
  virtual bool every_step_once(const std::string& name, std::int64_t steps) = 0;
  /// An undisturbed run of these settings, which is kept from drill to drill. nullopt: there is none yet, and
  /// `name` is the name for it.
  virtual std::optional<Baseline> known_baseline(const std::vector<std::string>& sets, std::string& name) = 0;
};

struct CaseReport {
  CaseRecord record;
  std::vector<std::string> differences;  ///< empty: as expected
  double wall_s = 0;
};
struct DrillReport {
  std::string name, began;
  std::uint64_t seed = 0;
  std::vector<CaseReport> cases;
  bool passed() const;
};

struct DrillListener {
  std::function<void(const std::string&)> message;    ///< a line for people
  std::function<void(const DrillReport&)> case_done;  ///< the report has one more case
};

/// Runs the cases in order. A case that cannot be run at all has failed, and so has one whose baseline fails,
/// since there is nothing to compare it with; then the next case is tried. Does not throw.
DrillReport run_drill(Testbed& testbed, const DrillPlan& drill, std::uint64_t seed,
                      const DrillListener& listener);

}  // namespace holdfast::launcher
