#include "launcher/cli/run_facts.hpp"

#include "launcher/job/run_owner.hpp"
#include "launcher/report/facts.hpp"
#include "launcher/supervise/journal.hpp"
#include "slurm/reasons.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"
#include "src/config/shown.hpp"

namespace holdfast::launcher {
void read_settings(const RunDir& run, StatusFacts& facts) {
  const auto config = config::read_settings(run);
  facts.name = config.run.name;
  facts.steps = config.train.steps;
  facts.own_trainer = own_trainer(config.rank);
  facts.kind = config.rank.kind;
}

StatusFacts facts_of(const RunDir& run) {
  StatusFacts facts;
  read_settings(run, facts);
  facts.state = replay(run);
  facts.term = highest_valid_term(run);
  if (files::exists_or_fail(run.nodes())) facts.roster = read_roster(run);
  facts.last_step = report::last_metrics_line(facts.own_trainer ? run.metrics() : run.reported_metrics());
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

JobFacts job_facts(const RunDir& run, slurm::ClusterCli& cluster) {
  std::optional<slurm::JobId> id;
  try {
    if (const auto owner = read_owner(run)) id = owner->job;
    return job_facts(id, id ? cluster.queued_job(*id, std::chrono::seconds(5)) : std::nullopt);
  } catch (const Error& error) {
    JobFacts facts;
    facts.id = id;
    facts.unanswered = error.what();
    return facts;
  }
}

}  // namespace holdfast::launcher
