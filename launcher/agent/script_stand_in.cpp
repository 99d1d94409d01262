#include "launcher/agent/script_stand_in.hpp"

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

namespace {
constexpr std::chrono::seconds period{30};

bool runs(const std::optional<slurm::Job>& job) { return job && job->state == slurm::JobState::running; }

}  // namespace

ScriptStandIn::ScriptStandIn(control::Loop& loop, std::shared_ptr<slurm::Cluster> cluster, slurm::JobId job,
                             int notice_s, std::function<void()> time_is_short)
    : loop_(loop),
      cluster_(std::move(cluster)),
      job_(job),
      notice_s_(notice_s + std::chrono::duration<double>(period).count()),
      time_is_short_(std::move(time_is_short)) {}

ScriptStandIn::~ScriptStandIn() {
  *alive_ = false;
  if (worker_.joinable()) worker_.join();
}

void ScriptStandIn::watch_the_clock() {
  if (timer_) return;
  log::warn("the batch host is lost: asking SLURM for the end of job {}", job_);
  timer_ = loop_.every(period, [this] { ask(); });
  ask();
}

void ScriptStandIn::ask() {
  if (busy_ || said_) return;
  busy_ = true;
  if (worker_.joinable()) worker_.join();
  worker_ = std::thread([this, alive = alive_] {
    std::optional<double> end;
    try {
      const auto job = cluster_->job(job_);
      if (runs(job)) end = job->end_time;
    } catch (const Error& error) {
      log::warn("{}", error.what());
    }
    loop_.post([this, alive, end] {
      if (!*alive) return;
      busy_ = false;
      if (said_ || !end || *end - unix_seconds() > notice_s_) return;
      said_ = true;
      time_is_short_();
    });
  });
}

void ScriptStandIn::conclude(int exit_code) {
  timer_.reset(), said_ = true;
  if (worker_.joinable()) worker_.join();
  worker_ = std::thread([cluster = cluster_, job = job_, exit_code] {
    try {
      if (!runs(cluster->job(job))) return;
      log::warn("the batch host is lost: {} job {}",
                exit_code == static_cast<int>(Exit::transient) ? "queueing again" : "ending", job);
      if (exit_code == static_cast<int>(Exit::transient))
        cluster->requeue(job);
      else
        cluster->cancel(job);
    } catch (const Error& error) {
      log::error("job {} keeps its nodes: {}", job, error.what());
    }
  });
}

}  // namespace holdfast::launcher
