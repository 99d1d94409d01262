// Who may use a run directory, told by two files:
// - owner.json names the job, or the process that claims the directory for a job which does not exist yet;
// - bare.lock is locked for as long as a run without SLURM lives.
//
// A process that wants the directory creates owner.json exclusively. Where there is one already, SLURM (for a
// local run, the lock) says whether its owner lives; the file of a dead owner is moved aside and compared, so
// that of several processes one wins. A run without SLURM takes the lock first and looks for an owner then,
// and a job does the reverse: when two start at once, at least one notices the other.
#include "launcher/job/run_owner.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "launcher/supervise/journal.hpp"
#include "slurm/batch_script.hpp"
#include "slurm/commands.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/run_lock.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using slurm::JobId;

constexpr double claim_s = 600;  ///< a claim without a job is dropped after so long

Owner this_process() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return {std::nullopt, host.data(), static_cast<int>(::getpid()), unix_seconds()};
}

std::string text_of(const Owner& owner) {
  json out = {{"schema_version", 1},
              {"job_id", nullptr},
              {"host", owner.host},
              {"pid", owner.pid},
              {"since", owner.since}};
  if (owner.job) out["job_id"] = *owner.job;
  if (owner.local) out["local"] = true;
  return out.dump() + "\n";
}

/// The run was told to end in this job, or has ended in it for good.
bool ends_in(const RunDir& run, JobId job) {
  try {
    const RunState state = replay(run);
    return state.job.substr(0, state.job.find('.')) == std::to_string(job) &&
           (state.over_for_good() || (!state.outcome && state.drain && state.drain->for_good));
  } catch (const Error&) {  // it only decides what to advise
    return false;
  }
}

/// The reason why the directory cannot be taken.
struct Holder {
  Error error;
};

/// For advice alone.
slurm::JobName called(slurm::Cluster& cluster, JobId id) {
  try {
    return cluster.called(id);
  } catch (const Error&) {
    return id;
  }
}

Error still_going_on(const RunDir& run, const std::string& why) {
  return {Exit::usage,
          fmt::format("the run directory {} belongs to a run that is still going on", run.path.string()), why,
          "Wait for it, or choose another run.dir?"};
}

std::string who_runs_locally(const std::optional<Owner>& owner) {
  if (!owner || !owner->local) return "another process holds bare.lock";
  return fmt::format("process {} on {} runs it without SLURM, since {}", owner->pid, owner->host,
                     utc_iso8601(owner->since));
}

std::optional<Holder> live_holder(const RunDir& run, const Owner& owner, slurm::Cluster& cluster) {
  const std::string where = run.path.string();
  const auto owned_by = [&](JobId id, const std::string& why, const std::string& hint) {
    return Holder{Error(
        hint.empty() ? Exit::usage : Exit::transient,
        fmt::format("the run directory {} belongs to job {}", where, id), why,
        !hint.empty() ? hint
                      : fmt::format("Follow it with 'holdfast status', end it with '{}', let this job wait "
                                    "for it with '-- --dependency=afterany:{}', or choose another run.dir?",
                                    slurm::shown(slurm::cancel_argv(called(cluster, id))), id))};
  };
  if (owner.local) {
    if (!is_locked(run)) return std::nullopt;
    return Holder{still_going_on(run, who_runs_locally(owner))};
  }
  try {
    if (owner.job) {
      const auto job = cluster.job(*owner.job);
      if (!job || !job->alive()) return std::nullopt;
      // Only SLURM knows that no process of it writes any more, also on a node that does not answer.
      if (job->state == slurm::JobState::completing)
        return owned_by(
            job->id, "the job is " + job->state_text + ": SLURM makes sure that its processes have ended",
            "Try again in a moment. If a node of the job does not answer, SLURM waits until it gives "
            "the node up (SlurmdTimeout, 5 minutes by default).");
      if (ends_in(run, job->id))
        return owned_by(job->id, "the job is " + job->state_text + ", and the run is ending",
                        "Try again in a moment.");
      return owned_by(job->id, "the job is " + job->state_text, "");
    }
    if (const auto ids = cluster.jobs_of_script(run.script()); !ids.empty())
      return owned_by(ids.back(), "the job is alive", "");
  } catch (const Error& error) {
    if (error.exit() != Exit::transient) throw;
    throw Error(Exit::transient,
                "cannot tell whether the job that has the run directory " + where + " still lives",
                error.what(), "Nothing was changed.");
  }
  const Owner here = this_process();
  const bool claimant_may_live =
      owner.host != here.host || (owner.pid != here.pid && (::kill(owner.pid, 0) == 0 || errno == EPERM));
  if (claimant_may_live && unix_seconds() - owner.since < claim_s)
    return Holder{
        Error(Exit::usage, "another submit has the run directory " + where,
              fmt::format("process {} on {}, since {}", owner.pid, owner.host, utc_iso8601(owner.since)),
              "Wait for it to end?")};
  return std::nullopt;
}

/// Removes an owner that is dead. False when another process was faster and the file has changed.
bool remove_dead(const RunDir& run, const Owner& dead) {
  const Owner here = this_process();
  const std::filesystem::path aside = run.owner().string() + fmt::format(".dead-{}-{}", here.host, here.pid);
  if (::rename(run.owner().c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return false;
    throw system_error("cannot take over " + run.owner().string(), errno);
  }
  // Between the check and the rename another submit may have done the same and written its own claim.
  const auto moved = json_from(files::read_text(aside));
  const bool same = moved == json_from(text_of(dead));
  if (!same) [[maybe_unused]]
    const int ignored = ::link(aside.c_str(), run.owner().c_str());
  ::unlink(aside.c_str());
  return same;
}

/// Creates owner.json with its text in one step (a reader never sees an empty file); false when there is one
/// already.
bool create(const RunDir& run, const Owner& owner) {
  const std::filesystem::path aside =
      run.owner().string() + fmt::format(".new-{}-{}", owner.host, ::getpid());
  files::replace_atomically(aside, text_of(owner));
  const int status = ::link(aside.c_str(), run.owner().c_str()), error = errno;
  ::unlink(aside.c_str());
  if (status == 0) return files::sync_folder(run.path), true;
  if (error == EEXIST) return false;
  if (error == EPERM || error == ENOTSUP)
    return files::create_exclusively(run.owner(), text_of(owner));  // that file system has no hard links
  throw system_error("cannot create " + run.owner().string(), error);
}

Error taken_again_and_again(const RunDir& run) {
  return {Exit::transient, "cannot take the run directory " + run.path.string(),
          "other processes keep taking it", "Try again?"};
}

/// Writes `mine` as the owner, in place of owners that are dead.
void acquire(const RunDir& run, const Owner& mine, slurm::Cluster& cluster, Exit refusal) {
  for (int tries = 0; tries < 20; ++tries) {
    if (create(run, mine)) return;
    const auto owner = read_owner(run);
    if (!owner) continue;
    if (owner->job && owner->job == mine.job) return;
    if (auto holder = live_holder(run, *owner, cluster)) {
      const Error& error = holder->error;
      throw Error(error.exit() == Exit::usage ? refusal : error.exit(), error.problem(), error.why(),
                  error.hint());
    }
    remove_dead(run, *owner);
  }
  throw taken_again_and_again(run);
}

/// A run without SLURM holds the lock as long as it lives, and checks for an owner after it has taken the
/// lock. This is called when owner.json exists, so that one of the two notices the other.
void refuse_bare_run(const RunDir& run, Exit refusal) {
  if (!is_locked(run)) return;
  const Error error = still_going_on(run, "a process that SLURM does not know holds bare.lock");
  throw Error(refusal, error.problem(), error.why(), error.hint());
}

/// Takes the directory; gives it back when a run without agents has it.
void take(const RunDir& run, const Owner& mine, slurm::Cluster& cluster, Exit refusal) {
  acquire(run, mine, cluster, refusal);
  try {
    refuse_bare_run(run, refusal);
  } catch (const Error&) {
    std::filesystem::remove(run.owner());
    throw;
  }
}

}  // namespace

std::optional<Owner> read_owner(const RunDir& run) {
  if (!files::exists_or_fail(run.owner())) return std::nullopt;
  const auto read = json_from(files::read_text(run.owner()));
  try {
    Owner owner{std::nullopt, read.at("host"), read.at("pid"), read.at("since")};
    if (!read.at("job_id").is_null()) owner.job = read.at("job_id").get<JobId>();
    owner.local = read.value("local", false);
    return owner;
  } catch (const json::exception&) {
    throw Error(Exit::runtime, run.owner().string() + " is damaged",
                "it does not say which job owns the run directory",
                "Make sure that no job uses the directory, and remove the file?");
  }
}

RunDirClaim::RunDirClaim(const RunDir& run, slurm::Cluster& cluster) : run_(run), mine_(this_process()) {
  take(run_, mine_, cluster, Exit::usage);
}

RunDirClaim::~RunDirClaim() {
  try {
    if (held_ && read_owner(run_) == mine_) std::filesystem::remove(run_.owner());
  } catch (...) {  // the next submit finds the claim of a dead process
  }
}

void RunDirClaim::check() const {
  if (read_owner(run_) != mine_)
    throw Error(Exit::usage, "another submit has taken the run directory " + run_.path.string(),
                "owner.json is not ours any more");
}

void RunDirClaim::give_to(JobId job) {
  held_ = false;
  mine_.job = job;
  files::replace_atomically(run_.owner(), text_of(mine_));
}

namespace {

/// For a local run. Where SLURM is not installed, nobody knows whether the job lives.
void refuse_job_of(const RunDir& run, const Owner& owner, slurm::Cluster& slurm) {
  std::optional<Holder> holder;
  try {
    holder = live_holder(run, owner, slurm);
  } catch (const Error& error) {
    throw Error(error.exit(), fmt::format("the run directory {} belongs to a job", run.path.string()),
                "SLURM cannot be asked whether it lives: " + error.problem(),
                "If the job has ended, remove " + run.owner().string() + "?");
  }
  if (holder) throw Error(holder->error);
}

}  // namespace

JobId take_for_local_run(const RunDir& run, slurm::Cluster& slurm) {
  static std::optional<files::Fd> lock;  // held until the process ends
  lock.reset();
  lock = lock_run(run);
  if (!lock) throw still_going_on(run, who_runs_locally(read_owner(run)));
  Owner mine = this_process();
  mine.local = true;
  mine.job = static_cast<JobId>(mine.since);
  for (int tries = 0; tries < 20; ++tries) {
    const auto owner = read_owner(run);
    if (!owner && create(run, mine)) return *mine.job;
    if (!owner) continue;
    if (!owner->local) refuse_job_of(run, *owner, slurm);
    if (owner->local && owner->job && !replay(run).outcome) mine.job = owner->job;
    remove_dead(run, *owner);
  }
  throw taken_again_and_again(run);
}

std::vector<JobId> live_jobs(const RunDir& run, slurm::Cluster& cluster) {
  auto ids = cluster.jobs_of_script(run.script());
  const auto owner = read_owner(run);
  if (!owner || !owner->job || owner->local || std::ranges::find(ids, *owner->job) != ids.end()) return ids;
  if (const auto job = cluster.job(*owner->job); job && job->alive()) ids.push_back(job->id);
  return ids;
}

std::optional<JobId> live_owner(const RunDir& run, JobId job, slurm::Cluster& cluster) {
  const auto owner = read_owner(run);
  if (!owner || !owner->job || owner->local || owner->job == job) return std::nullopt;
  const auto other = cluster.job(*owner->job);
  return other && other->alive() ? owner->job : std::nullopt;
}

void confirm_owner(const RunDir& run, JobId job, slurm::Cluster& cluster) {
  const auto owner = read_owner(run);
  if (owner && owner->job == job) return;
  Owner mine = this_process();
  mine.job = job;
  // A claim without a job is that of the submit of this job: both write the same job id.
  if (owner && !owner->job) return files::replace_atomically(run.owner(), text_of(mine));
  take(run, mine, cluster, Exit::no_requeue);
}

}  // namespace holdfast::launcher
