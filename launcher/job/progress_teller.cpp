#include "launcher/job/progress_teller.hpp"

#include <algorithm>
#include <mutex>

#include "launcher/report/facts.hpp"
#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis between_looks{2000};
constexpr std::chrono::seconds slurm_limit{5}, last_slurm_limit{2};  // of each of two questions
constexpr Millis slurm_end_limit{11000};                             // a little more than both
constexpr std::chrono::seconds last_look_limit{5};
constexpr double least_pause_s = 10,
                 usual_least_s = 60;  // between comments; the first: after an attempt's end

enum class Commented { taken, kept, failed };

Commented put_comment(slurm::Cluster& cluster, slurm::JobId job, const std::string& text,
                      std::chrono::seconds limit) {
  try {
    if (!report::may_replace_comment(cluster.comment(job, limit))) return Commented::kept;
    cluster.set_comment(job, text, limit);
    return Commented::taken;
  } catch (const Error& error) {
    log::info("SLURM has not taken a comment: {}", error.what());
    return Commented::failed;
  }
}

}  // namespace

class ProgressTeller::Record {
 public:
  Record(RunDir run, StatusFacts facts)
      : metrics_(report::metrics_of(run, facts.promises)), events_(std::move(run)) {
    seen_.facts = std::move(facts);
  }
  /// Nothing: it cannot be read now, or another thread has been at it for `limit`.
  std::optional<Seen> look(std::chrono::seconds limit = {}) {
    const std::unique_lock alone(mutex_, limit);
    if (!alone) return std::nullopt;
    try {
      if (events_.look()) {
        seen_.events = events_.events();
        seen_.facts.state = {};
        for (const auto& entry : seen_.events) apply(seen_.facts.state, entry);
      }
      seen_.facts.last_step = report::last_metrics_line(metrics_);
      return seen_;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  std::timed_mutex mutex_;
  std::filesystem::path metrics_;
  EventFollower events_;
  Seen seen_;
};

ProgressTeller::ProgressTeller(control::Loop& loop, slurm::Cluster& cluster, Setup setup)
    : loop_(loop),
      cluster_(cluster),
      setup_(std::move(setup)),
      record_(std::make_shared<Record>(setup_.run, setup_.facts)),
      began_at_(loop.steady_seconds()),
      reader_(loop),
      to_slurm_(loop, slurm_end_limit) {
  if (const auto before = record_->look()) lines_.emplace(before->events, before->facts.last_step);
  tick_ = loop_.every(between_looks, [this] { look(); });
}

void ProgressTeller::look() {
  if (reader_.busy_for()) return;
  reader_.ask([record = record_] { return record->look(); },
              [this](const std::optional<Seen>& seen) {
                if (!seen) return;
                tell(*seen);
                comment(seen->facts);
              });
}

void ProgressTeller::tell(const Seen& seen) {
  const auto& facts = seen.facts;
  if (!lines_) lines_.emplace(seen.events, facts.last_step);
  for (const auto& line : lines_->more(seen.events, facts.last_step, facts.steps.value_or(0),
                                       loop_.steady_seconds() - began_at_))
    log::info("{}", line);
}

void ProgressTeller::comment(const StatusFacts& facts) {
  if (setup_.comment_s == 0 || !comment_is_ours_ || to_slurm_.busy_for()) return;
  const auto ended = std::ranges::count_if(facts.state.attempts,
                                           [](const auto& attempt) { return attempt.ended_at.has_value(); });
  const double now = loop_.steady_seconds();
  const std::string state = state_for_all(facts);
  const double pause = ended != ended_attempts_    ? least_pause_s
                       : state != commented_state_ ? usual_least_s
                                                   : std::max<double>(setup_.comment_s, usual_least_s);
  if (comment_at_ && now - *comment_at_ < pause) return;
  const std::string text = report::job_comment(facts);
  if (text == commented_) return;
  comment_at_ = now;
  ended_attempts_ = ended;
  commented_state_ = state;
  to_slurm_.ask(
      [cluster = &cluster_, job = setup_.job, text] { return put_comment(*cluster, job, text, slurm_limit); },
      [this, text](Commented what) {
        if (what == Commented::taken) commented_ = text;
        if (what != Commented::kept) return;
        comment_is_ours_ = false;
        log::info("job {} has a comment of somebody else, which stays", setup_.job);
      });
}

void ProgressTeller::finish() {
  tick_.reset();
  const auto seen = record_->look(last_look_limit);
  if (!seen) return;
  tell(*seen);
  if (!seen->facts.state.outcome || seen->facts.state.job != setup_.allocation) return;
  for (const auto& line : report::summary_lines(seen->facts)) log::info("{}", line);
  if (setup_.comment_s > 0 && comment_is_ours_ && !to_slurm_.busy_for())
    put_comment(cluster_, setup_.job, report::job_comment(seen->facts), last_slurm_limit);
}

}  // namespace holdfast::launcher
