#include "launcher/cli/run_facts.hpp"

#include <fmt/format.h>

#include "checkpoint/index/best.hpp"
#include "launcher/report/facts.hpp"
#include "launcher/supervise/journal.hpp"
#include "slurm/reasons.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_lock.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher {
StatusFacts facts_of(const RunDir& run) {
  StatusFacts facts;
  take_settings(config::read_settings(run), facts);
  facts.state = replay(run);
  facts.term = highest_valid_term(run);
  if (files::exists_or_fail(run.nodes())) facts.roster = read_roster(run);
  facts.last_step = report::last_metrics_line(report::metrics_of(run, facts.promises));
  if (facts.keeps_best)
    if (const auto best = checkpoint::best_of(run.checkpoints()))
      facts.best = {best->step, best->held_out_loss};
  count_steps(facts);
  return facts;
}

JobFacts job_facts(std::optional<slurm::JobId> id, const std::optional<slurm::OwnJob>& job) {
  JobFacts facts;
  facts.id = id;
  if (!job) return facts;
  facts.id = job->id;
  facts.state = job->state_text;
  facts.reason = job->reason;
  facts.meaning = slurm::reason_in_words(job->reason);
  facts.start = job->start;
  facts.pending = job->state == slurm::JobState::pending;
  facts.live = job->state != slurm::JobState::finished;
  return facts;
}

JobFacts job_facts(const RunDir& run, const std::optional<Owner>& owner, slurm::ClusterCli& cluster) {
  JobFacts facts;
  try {
    if (!owner || !owner->job) return facts;
    if (!owner->local) return job_facts(owner->job, cluster.queued_job(*owner->job, std::chrono::seconds(5)));
    facts.local = fmt::format("process {} on {}", owner->pid, owner->host);
    facts.start = owner->since;
    facts.live = is_locked(run);
  } catch (const Error& error) {
    facts.unanswered = error.what();
  }
  facts.id = owner->job;
  return facts;
}

JobFacts job_facts(const RunDir& run, slurm::ClusterCli& cluster) {
  std::optional<Owner> owner;
  try {
    owner = read_owner(run);
  } catch (const Error& error) {
    JobFacts facts;
    facts.unanswered = error.what();
    return facts;
  }
  return job_facts(run, owner, cluster);
}

}  // namespace holdfast::launcher
