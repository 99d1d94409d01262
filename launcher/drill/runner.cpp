// run_drill() takes the cases in order. A case that is to end with 0 first needs a baseline, an undisturbed
// run; then each repetition heals the testbed, follows one run in a CaseRunner, and lists the differences.
//
// CaseRunner::run() submits and holds the run, so that it cannot end before its faults. Every 100 ms it reads
// the view, carries out what the schedule names as due, releases the run when all effects were seen or the
// case has failed, and ends when the run is over and every fault undone, or the time is over. keep_in_queue()
// submits a run again whose job is gone, 6 times in all at most; leave() waits until the job has left the
// queue.
//
// A fault that cannot be injected counts as injected: the case goes on, and has failed. Any other Error ends
// the case, whose job the destructor cancels, and the next case begins.
#include "launcher/drill/runner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis poll_period{100};
constexpr double least_step_s =
    0.1;  ///< until every effect is seen: no more than one step per poll, on any machine
constexpr double ask_slurm_s = 5;   ///< between queries about the job
constexpr double still_s = 15;      ///< after so long without anything new SLURM is asked about the job
constexpr int max_submissions = 6;  ///< of one case: a run that is requeued without end makes no progress
constexpr double leave_s = 60;      ///< for the job of a run that is over to leave the queue

/// Follows one run to its end.
class CaseRunner {
 public:
  CaseRunner(Testbed& testbed, const DrillCase& plan, std::uint64_t seed, std::string name,
             std::vector<std::string> sets)
      : testbed_(testbed), schedule_(plan, seed), name_(std::move(name)), sets_(std::move(sets)) {
    out_.plan = plan;
    out_.seed = seed;
    out_.run = testbed.run_path(name_);
  }
  CaseRunner(const CaseRunner&) = delete;
  /// A case that was aborted leaves no job behind: the next one needs its nodes.
  ~CaseRunner() {
    if (job_.empty()) return;
    try {
      testbed_.cancel(job_);
    } catch (const std::exception& error) {
      log::warn("job {} cannot be cancelled: {}", job_, error.what());
    }
  }

  CaseRecord run() {
    const double limit = testbed_.now() + out_.plan.limit_s;
    job_ = testbed_.submit(name_, sets_);
    bool held = !out_.plan.faults.empty();
    if (held) testbed_.hold(name_, least_step_s, out_.plan.limit_s);
    while (true) {
      out_.last = testbed_.view(name_);
      for (const auto& injection : schedule_.due(out_.last)) carry_out(injection);
      out_.injected = schedule_.injected();
      if (held && may_end()) {
        testbed_.release(name_);
        held = false;
      }
      if (out_.last.state.over_for_good() && healed()) break;
      if (testbed_.now() > limit) {
        out_.timed_out = !out_.last.state.over_for_good();
        break;
      }
      keep_in_queue();
      testbed_.wait(poll_period);
    }
    leave();
    job_.clear();
    out_.missed = schedule_.missed();
    const auto& final = out_.last.state.final_state;
    out_.every_step_once = testbed_.every_step_once(name_, final ? final->step : 0);
    return std::move(out_);
  }

 private:
  /// All faults that are to be undone were undone; faults that were never due will not come any more.
  bool healed() const {
    return std::all_of(schedule_.injected().begin(), schedule_.injected().end(),
                       [](const Injected& s) { return s.undone; });
  }

  /// The run need not be held any longer: all effects were seen, or the case has failed.
  bool may_end() const { return !out_.errors.empty() || (schedule_.over() && every_effect_is_seen(out_)); }

  void carry_out(const ChosenFault& injection) {
    try {
      schedule_.record(injection, testbed_.inject(injection, name_, job_), out_.last);
    } catch (const std::exception& error) {
      // It counts as injected, so that the case goes on; and the case has failed.
      out_.errors.push_back(
          fmt::format("{}{}: {}", injection.undo ? "undoing " : "", injection.fault->name, error.what()));
      schedule_.record(injection, testbed_.now(), out_.last);
    }
  }

  /// A run that goes on in another job needs that job.
  void keep_in_queue() {
    const double now = testbed_.now();
    const auto state = std::pair(out_.last.events.size(), out_.last.step);
    if (state != seen_) {
      seen_ = state;
      moved_at_ = now;
    }
    const bool drained = out_.last.state.outcome && !out_.last.state.over_for_good();
    if ((!drained && now - moved_at_ < still_s) || now - asked_at_ < ask_slurm_s) return;
    asked_at_ = now;
    switch (testbed_.job(job_)) {
      case Testbed::Job::waiting:
        return testbed_.start_now(job_);
      case Testbed::Job::gone:
        if (out_.submissions >= max_submissions) return;
        ++out_.submissions;
        if (healed()) testbed_.heal();  // a node that is still down would keep it in the queue for ever
        job_ = testbed_.submit(name_, sets_);
        moved_at_ = now;
        return;
      case Testbed::Job::running:
      case Testbed::Job::leaving:
      case Testbed::Job::unknown:
        return;
    }
  }

  void leave() {
    const double limit = testbed_.now() + leave_s;
    if (out_.timed_out) testbed_.cancel(job_);
    while (testbed_.now() < limit) {
      const auto job = testbed_.job(job_);
      if (job == Testbed::Job::gone || job == Testbed::Job::leaving) return;
      if (job == Testbed::Job::waiting) testbed_.cancel(job_);
      testbed_.wait(Millis(500));
    }
    if (!out_.timed_out)
      out_.errors.push_back(fmt::format("its job did not leave the queue within {:.0f} s", leave_s));
    testbed_.cancel(job_);
  }

  Testbed& testbed_;
  FaultSchedule schedule_;
  std::string name_, job_;
  std::vector<std::string> sets_;
  CaseRecord out_;
  std::pair<std::size_t, std::int64_t> seen_{0, 0};
  double moved_at_ = 0, asked_at_ = 0;
};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Baseline baseline_of(Testbed& testbed, const DrillPlan& drill, const DrillCase& plan,
                     const std::vector<std::string>& sets,
                     const std::function<void(const std::string&)>& said) {
  std::string name;
  if (const auto known = testbed.known_baseline(sets, name)) return *known;
  DrillCase undisturbed;
  undisturbed.name = name;
  undisturbed.limit_s = std::max(drill.limit_s, plan.limit_s);
  testbed.heal();
  const CaseRecord run = CaseRunner(testbed, undisturbed, 0, name, sets).run();
  const auto& state = run.last.state;
  if (!state.outcome || state.outcome->exit_code != 0 || !state.final_state || state.attempts.size() != 1)
    throw Error(Exit::runtime, "the undisturbed run has failed",
                state.outcome ? state.outcome->status + " " + state.outcome->why
                              : fmt::format("it was not over after {:.0f} s", undisturbed.limit_s),
                "Look at " + run.run + " before anything is broken on purpose?");
  said(fmt::format("undisturbed: {} steps, digest {}", state.final_state->step,
                   state.final_state->state_digest));
  return {state.final_state->step, state.final_state->state_digest};
}

CaseReport run_case(Testbed& testbed, const DrillCase& plan, const std::vector<std::string>& sets,
                    const Baseline& baseline, int repetition, std::uint64_t seed) {
  const std::uint64_t own = mix64(
      seed ^ mix64(hash_name(plan.name.data(), plan.name.size()) + static_cast<std::uint64_t>(repetition)));
  const double began = testbed.now();
  CaseReport result;
  try {
    testbed.heal();
    result.record = CaseRunner(testbed, plan, own, fmt::format("{}-{}", plan.name, repetition), sets).run();
    result.differences = differences_of(result.record, baseline);
  } catch (const std::exception& error) {
    result.record.plan = plan;
    result.record.seed = own;
    result.differences = {error.what()};
  }
  result.record.repetition = repetition;
  result.wall_s = testbed.now() - began;
  return result;
}

}  // namespace

bool DrillReport::passed() const {
  return std::all_of(cases.begin(), cases.end(), [](const CaseReport& c) { return c.differences.empty(); });
}

DrillReport run_drill(Testbed& testbed, const DrillPlan& drill, std::uint64_t seed,
                      const DrillListener& listener) {
  DrillReport report{drill.name, utc_iso8601(testbed.now()), seed, {}};
  for (const auto& plan : drill.cases) {
    const auto sets = joined(drill.set, plan.set);
    const auto add = [&](CaseReport result) {
      std::string line =
          fmt::format("{} {} ({}/{}, {})", result.differences.empty() ? "ok    " : "FAILED", plan.name,
                      result.record.repetition, plan.repeat, duration_text(result.wall_s));
      for (const auto& why : result.differences) line += "\n         " + why;
      report.cases.push_back(std::move(result));
      listener.message(line);
      listener.case_done(report);
    };
    Baseline baseline;
    try {
      if (plan.exit_code == 0) baseline = baseline_of(testbed, drill, plan, sets, listener.message);
    } catch (const std::exception& error) {
      CaseReport none;
      none.record.plan = plan;
      none.differences = {std::string("no baseline: ") + error.what()};
      add(std::move(none));
      continue;
    }
    for (int repetition = 1; repetition <= plan.repeat; ++repetition)
      add(run_case(testbed, plan, sets, baseline, repetition, seed));
  }
  try {
    testbed.heal();
  } catch (const std::exception& error) {
    listener.message(std::string("not healed at the end: ") + error.what());
  }
  return report;
}

}  // namespace holdfast::launcher
