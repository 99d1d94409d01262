#pragma once
// A campaign, case by case: submit, look, strike, judge. All that it does to the world goes through a Field.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launcher/drill/verdict.hpp"
#include "src/base/clock.hpp"

namespace holdfast::launcher {

/// Where a campaign takes place: a cluster, and the hands that break things in it.
class Field {
 public:
  virtual ~Field() = default;
  virtual double now() = 0;  ///< Unix seconds
  virtual void wait(Millis duration) = 0;
  /// Before and after each case: nothing is broken, all nodes are free. Throws Error when that cannot be had.
  virtual void heal() = 0;
  /// Submits the job with these settings as the run `name`; a second time: again, to go on. The job's id.
  virtual std::string submit(const std::string& name, const std::vector<std::string>& sets) = 0;
  /// The run's directory, as the report names it.
  virtual std::string place_of(const std::string& name) = 0;
  /// The run that was just submitted lasts until it is let go: no step takes less than `least_step_s`, and
  /// the last one is not taken, for `longest_s` at most (src/train/step_hold.hpp).
  virtual void hold(const std::string& name, double least_step_s, double longest_s) = 0;
  virtual void let_go(const std::string& name) = 0;
  virtual View look(const std::string& name) = 0;
  /// What SLURM has of the job; leaving: it is over, but for nodes that do not answer; unknown: SLURM does
  /// not answer.
  enum class Job { unknown, waiting, running, leaving, gone };
  virtual Job job(const std::string& id) = 0;
  /// A job that waits because it was put back may start now (where that is ours to say).
  virtual void hurry(const std::string& id) = 0;
  virtual void cancel(const std::string& id) = 0;
  /// Deals a blow, or takes it back; Unix seconds of the moment. Throws Error when it cannot.
  virtual double strike(const Strike& what, const std::string& name, const std::string& id) = 0;
  /// Are the metrics' steps 1 to `steps`, one line each?
  virtual bool every_step_once(const std::string& name, std::int64_t steps) = 0;
  /// A run of these settings that nobody disturbs, once: kept from campaign to campaign. nullopt: there is
  /// none yet, and `name` is what it is to be called.
  virtual std::optional<Baseline> known_baseline(const std::vector<std::string>& sets, std::string& name) = 0;
};

struct CaseReport {
  Outcome outcome;
  std::vector<std::string> wrong;
  double wall_s = 0;
};
struct CampaignReport {
  std::string name, began;
  std::uint64_t seed = 0;
  std::vector<CaseReport> cases;
  bool passed() const;
};

struct DrillListener {
  std::function<void(const std::string&)> said;             ///< a line for people
  std::function<void(const CampaignReport&)> another_case;  ///< one more is in the report
};

/// Runs the cases in order. A case that cannot be run at all has failed, and so has one whose baseline does
/// not end well, as there is nothing to compare it with; then the next one is tried. Does not throw.
CampaignReport run_campaign(Field& field, const CampaignPlan& campaign, std::uint64_t seed,
                            const DrillListener& listener);

}  // namespace holdfast::launcher
