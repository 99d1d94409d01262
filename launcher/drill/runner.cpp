#include "launcher/drill/runner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis glance{100};
constexpr double least_step_s = 0.1;  ///< until every fault is felt: a step for each glance, on any machine
constexpr double ask_slurm_s = 5;     ///< between questions about the job
constexpr double still_s = 15;        ///< nothing new for so long: does the job still live?
constexpr int most_submissions = 6;   ///< of one case: a run that is put back for ever makes no progress
constexpr double leave_s = 60;        ///< for the job of a run that is over to leave the queue

/// Follows one run to its end.
class Watch {
 public:
  Watch(Field& field, const DrillCase& plan, std::uint64_t seed, std::string name,
        std::vector<std::string> sets)
      : field_(field), course_(plan, seed), name_(std::move(name)), sets_(std::move(sets)) {
    out_.plan = plan, out_.seed = seed, out_.run = field.place_of(name_);
  }
  Watch(const Watch&) = delete;
  /// A case that was broken off leaves no job behind: the next one needs its nodes.
  ~Watch() {
    if (job_.empty()) return;
    try {
      field_.cancel(job_);
    } catch (const std::exception& error) {
      log::warn("job {} cannot be cancelled: {}", job_, error.what());
    }
  }

  Outcome run() {
    const double limit = field_.now() + out_.plan.limit_s;
    job_ = field_.submit(name_, sets_);
    bool held = !out_.plan.blows.empty();
    if (held) field_.hold(name_, least_step_s, out_.plan.limit_s);
    while (true) {
      out_.last = field_.look(name_);
      for (const auto& strike : course_.due(out_.last)) deal(strike);
      out_.struck = course_.struck();
      if (held && nothing_to_come()) field_.let_go(name_), held = false;
      if (ended_for_good(out_.last) && healed()) break;
      if (field_.now() > limit) {
        out_.timed_out = !ended_for_good(out_.last);
        break;
      }
      keep_in_queue();
      field_.wait(glance);
    }
    leave();
    job_.clear();
    out_.missed = course_.missed();
    const auto& final = out_.last.state.final_state;
    out_.every_step_once = field_.every_step_once(name_, final ? final->step : 0);
    return std::move(out_);
  }

 private:
  /// All that was to be taken back is: what never came does not come any more.
  bool healed() const {
    return std::all_of(course_.struck().begin(), course_.struck().end(),
                       [](const Struck& s) { return s.undone; });
  }

  /// Whatever the run must still be there for has happened, or the case has failed.
  bool nothing_to_come() const {
    return !out_.troubles.empty() || (course_.over() && every_fault_is_felt(out_));
  }

  void deal(const Strike& strike) {
    try {
      course_.dealt(strike, field_.strike(strike, name_, job_), out_.last);
    } catch (const std::exception& error) {
      // It counts as dealt, so that the case goes on; and the case has failed.
      out_.troubles.push_back(
          fmt::format("{}{}: {}", strike.undo ? "undoing " : "", strike.fault->name, error.what()));
      course_.dealt(strike, field_.now(), out_.last);
    }
  }

  /// A run that was told to go on in another job needs that job.
  void keep_in_queue() {
    const double now = field_.now();
    const auto state = std::pair(out_.last.events.size(), out_.last.step);
    if (state != seen_) seen_ = state, moved_at_ = now;
    const bool drained = out_.last.state.verdict && !ended_for_good(out_.last);
    if ((!drained && now - moved_at_ < still_s) || now - asked_at_ < ask_slurm_s) return;
    asked_at_ = now;
    switch (field_.job(job_)) {
      case Field::Job::waiting:
        return field_.hurry(job_);
      case Field::Job::gone:
        if (out_.submissions >= most_submissions) return;
        ++out_.submissions;
        if (healed()) field_.heal();  // nodes that are still off would keep it in the queue for ever
        job_ = field_.submit(name_, sets_);
        moved_at_ = now;
        return;
      case Field::Job::running:
      case Field::Job::leaving:
      case Field::Job::unknown:
        return;
    }
  }

  void leave() {
    const double limit = field_.now() + leave_s;
    if (out_.timed_out) field_.cancel(job_);
    while (field_.now() < limit) {
      const auto job = field_.job(job_);
      if (job == Field::Job::gone || job == Field::Job::leaving) return;
      if (job == Field::Job::waiting) field_.cancel(job_);
      field_.wait(Millis(500));
    }
    if (!out_.timed_out)
      out_.troubles.push_back(fmt::format("its job did not leave the queue within {:.0f} s", leave_s));
    field_.cancel(job_);
  }

  Field& field_;
  Course course_;
  std::string name_, job_;
  std::vector<std::string> sets_;
  Outcome out_;
  std::pair<std::size_t, std::int64_t> seen_{0, 0};
  double moved_at_ = 0, asked_at_ = 0;
};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Baseline baseline_of(Field& field, const CampaignPlan& campaign, const DrillCase& plan,
                     const std::vector<std::string>& sets,
                     const std::function<void(const std::string&)>& said) {
  std::string name;
  if (const auto known = field.known_baseline(sets, name)) return *known;
  DrillCase undisturbed;
  undisturbed.name = name, undisturbed.limit_s = std::max(campaign.limit_s, plan.limit_s);
  field.heal();
  const Outcome run = Watch(field, undisturbed, 0, name, sets).run();
  const auto& state = run.last.state;
  if (!state.verdict || state.verdict->exit_code != 0 || !state.final_state || state.attempts.size() != 1)
    throw Error(Exit::runtime, "the undisturbed run has not ended well",
                state.verdict ? state.verdict->status + " " + state.verdict->why
                              : fmt::format("it was not over after {:.0f} s", undisturbed.limit_s),
                "Look at " + run.run + " before anything is broken on purpose?");
  said(fmt::format("undisturbed: {} steps, digest {}", state.final_state->step,
                   state.final_state->state_digest));
  return {state.final_state->step, state.final_state->state_digest};
}

CaseReport run_case(Field& field, const DrillCase& plan, const std::vector<std::string>& sets,
                    const Baseline& baseline, int repetition, std::uint64_t seed) {
  const std::uint64_t own = mix64(
      seed ^ mix64(hash_name(plan.name.data(), plan.name.size()) + static_cast<std::uint64_t>(repetition)));
  const double began = field.now();
  CaseReport result;
  try {
    field.heal();
    result.outcome = Watch(field, plan, own, fmt::format("{}-{}", plan.name, repetition), sets).run();
    result.wrong = what_is_wrong(result.outcome, baseline);
  } catch (const std::exception& error) {
    result.outcome.plan = plan, result.outcome.seed = own;
    result.wrong = {error.what()};
  }
  result.outcome.repetition = repetition;
  result.wall_s = field.now() - began;
  return result;
}

}  // namespace

bool CampaignReport::passed() const {
  return std::all_of(cases.begin(), cases.end(), [](const CaseReport& c) { return c.wrong.empty(); });
}

CampaignReport run_campaign(Field& field, const CampaignPlan& campaign, std::uint64_t seed,
                            const DrillListener& listener) {
  CampaignReport report{campaign.name, utc_iso8601(field.now()), seed, {}};
  for (const auto& plan : campaign.cases) {
    const auto sets = joined(campaign.set, plan.set);
    const auto add = [&](CaseReport result) {
      std::string line =
          fmt::format("{} {} ({}/{}, {})", result.wrong.empty() ? "ok    " : "FAILED", plan.name,
                      result.outcome.repetition, plan.repeat, duration_text(result.wall_s));
      for (const auto& why : result.wrong) line += "\n         " + why;
      report.cases.push_back(std::move(result));
      listener.said(line);
      listener.another_case(report);
    };
    Baseline baseline;
    try {
      if (plan.exit_code == 0) baseline = baseline_of(field, campaign, plan, sets, listener.said);
    } catch (const std::exception& error) {
      CaseReport none;
      none.outcome.plan = plan, none.wrong = {std::string("no baseline: ") + error.what()};
      add(std::move(none));
      continue;
    }
    for (int repetition = 1; repetition <= plan.repeat; ++repetition)
      add(run_case(field, plan, sets, baseline, repetition, seed));
  }
  try {
    field.heal();
  } catch (const std::exception& error) {
    listener.said(std::string("not healed at the end: ") + error.what());
  }
  return report;
}

}  // namespace holdfast::launcher
