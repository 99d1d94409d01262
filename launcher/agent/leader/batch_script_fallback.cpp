#include "launcher/agent/leader/batch_script_fallback.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {

namespace {
constexpr Millis query_shutdown_limit{100};  // nobody waits any more for the answer to a query
// Nobody else would end the job or requeue it: slurmctld is asked for as long as the batch script would ask
// it.
constexpr std::chrono::seconds conclusion_limit{300}, again_after{2};

// SLURM's signal comes when notice_s are left or up to a minute earlier. So long after it was due it will not
// come any more.
constexpr double overdue_s = 15;
constexpr double seldom_s = 300, often_s = 30, soonest_s = 1;

/// The comment was the batch host's to renew: it says so now, where it is Holdfast's.
void mark_comment(slurm::Cluster& cluster, slurm::JobId job) try {
  auto comment = json_from<nlohmann::ordered_json>(cluster.comment(job));
  if (!comment.is_object() || !comment.contains("holdfast")) return;
  comment["state"] = "the batch host is lost: see holdfast status";
  cluster.set_comment(job, comment.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
} catch (const Error& error) {
  log::info("the comment of job {} stays as it is: {}", job, error.what());
}

bool runs(const std::optional<slurm::Job>& job) { return job && job->state == slurm::JobState::running; }

/// Asks until SLURM answers, as long as the batch script would. A requeue without an answer may have
/// happened: then the job no longer runs, and the nodes are still to be excluded.
void conclude_job(slurm::Cluster& cluster, slurm::JobId job, int exit_code, const slurm::NextNodes& next) {
  const auto deadline = std::chrono::steady_clock::now() + conclusion_limit;
  const bool again = exit_code == static_cast<int>(Exit::transient);
  bool requeueing = false;
  for (std::string before;; std::this_thread::sleep_for(again_after)) try {
      const auto now = cluster.job(job);
      if (!(requeueing ? now && now->alive() : runs(now))) return;
      log::warn("the batch host is lost: {} job {}", again ? "queueing again" : "ending", job);
      if (!again) return cluster.cancel(job);
      requeueing = true;
      return slurm::requeue_elsewhere(cluster, job, next);
    } catch (const Error& error) {
      if (error.exit() != Exit::transient || std::chrono::steady_clock::now() > deadline)
        return log::error("job {} keeps its nodes: {}", job, error.what());
      if (before != error.what())
        log::warn("job {} keeps its nodes until SLURM answers: {}", job, error.what());
      before = error.what();
    }
}

}  // namespace

double next_query_s(std::optional<double> left, double notice_s, bool script_is_lost) {
  const double period = script_is_lost ? often_s : seldom_s;
  if (!left) return period;
  const double to_go = *left - (script_is_lost ? notice_s : notice_s - overdue_s);
  return to_go <= 0 ? 0 : std::clamp(to_go, soonest_s, period);
}

BatchScriptFallback::BatchScriptFallback(control::Loop& loop, std::shared_ptr<slurm::Cluster> cluster,
                                         slurm::JobId job, int notice_s, std::function<void()> time_is_short)
    : loop_(loop),
      cluster_(std::move(cluster)),
      job_(job),
      notice_s_(notice_s),
      time_is_short_(std::move(time_is_short)),
      queries_(loop, query_shutdown_limit),
      last_request_(loop, conclusion_limit, control::Worker::Rest::done) {}

void BatchScriptFallback::watch_the_clock() { ask(); }

void BatchScriptFallback::is_lost() {
  if (std::exchange(lost_, true)) return;
  log::warn("the batch host is lost: asking SLURM for the end of job {}", job_);
  ask();
  queries_.run([cluster = cluster_, job = job_] { mark_comment(*cluster, job); });
}

void BatchScriptFallback::ask() {
  if (over_ || std::exchange(asking_, true)) return;
  queries_.ask(
      [cluster = cluster_, job = job_]() -> Answer {
        try {
          const auto now = cluster->job(job);
          return {runs(now) ? now->end_time : std::nullopt, ""};
        } catch (const Error& error) {
          return {std::nullopt, error.what()};
        }
      },
      [this](const Answer& answer) { answered(answer); });
}

void BatchScriptFallback::answered(const Answer& answer) {
  asking_ = false;
  if (answer.trouble != std::exchange(trouble_, answer.trouble) && !answer.trouble.empty())
    log::warn("the end of job {} is unknown: {}", job_, answer.trouble);
  if (over_) return;
  const double wait = next_query_s(answer.end ? std::optional(*answer.end - loop_.unix_now()) : std::nullopt,
                                   notice_s_, lost_);
  if (wait <= 0) {
    over_ = true;
    return time_is_short_();
  }
  timer_ =
      loop_.after(std::chrono::duration_cast<Millis>(std::chrono::duration<double>(wait)), [this] { ask(); });
}

void BatchScriptFallback::conclude(int exit_code, slurm::NextNodes next) {
  timer_.reset();
  over_ = true;
  last_request_.run([cluster = cluster_, job = job_, exit_code, next = std::move(next)] {
    conclude_job(*cluster, job, exit_code, next);
  });
}

}  // namespace holdfast::launcher
