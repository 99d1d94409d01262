#include "launcher/cli/live_view.hpp"

#include <fmt/format.h>

#include <mutex>

#include "launcher/cli/order_from_here.hpp"
#include "launcher/cli/run_facts.hpp"
#include "launcher/cli/run_watcher.hpp"
#include "src/base/access.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis between_looks{1000}, between_answers{5000}, between_questions{15000};
constexpr Millis ranks_limit{4000};
constexpr double slow_s = 2;  // an answer of storage that takes longer is worth a word

/// Where the ranks are, by the leader; nothing: it cannot be asked from here.
std::vector<watch::LiveNode> ask_for_ranks(const RunDir& run) {
  std::vector<watch::LiveNode> out;
  try {
    const auto answer = ask_from_here(run, control::Order::Verb::spares, "", ranks_limit);
    const auto nodes = json_from(answer.says);
    if (!nodes.is_array()) return {};
    for (const auto& node : nodes)
      if (node.is_object() && node.contains("phases") && node["phases"].is_object())
        out.push_back({typed<std::string>(node, "node").value_or(""),
                       typed<std::int64_t>(node, "step").value_or(-1),
                       node["phases"].get<std::map<std::string, int>>()});
  } catch (const std::exception&) {  // the view says what it knows without them
    return {};
  }
  return out;
}

}  // namespace

struct LiveView::Shared {
  explicit Shared(const RunDir& of) : run(of), watcher(of) {
    SeenRun nothing;
    nothing.view.status.name = run.path.filename().string();
    nothing.view.gap = "nothing is read yet";
    seen = std::make_shared<const SeenRun>(std::move(nothing));
  }
  RunDir run;
  std::mutex reading;  ///< of the watcher
  RunWatcher watcher;
  mutable std::mutex mutex;  ///< of what follows
  std::shared_ptr<const SeenRun> seen;
  std::vector<watch::LiveNode> live;
  std::optional<JobFacts> job;

  void look() {
    auto now = [&] {
      const std::scoped_lock alone(reading);
      return std::make_shared<const SeenRun>(watcher.look());
    }();
    const std::scoped_lock lock(mutex);
    seen = std::move(now);
  }
  std::shared_ptr<const SeenRun> newest() const {
    const std::scoped_lock lock(mutex);
    return seen;
  }
  void ask_slurm() {
    const auto now = newest();
    std::optional<JobFacts> answer;
    if (now->silent && now->owner) {
      slurm::ClusterCli cluster;
      answer = job_facts(run, now->owner, cluster);
    }
    const std::scoped_lock lock(mutex);
    job = std::move(answer);
  }
  void ask_agents() {
    const auto& state = newest()->view.status.state;
    std::vector<watch::LiveNode> answer;
    if (state.attempt_live() && !state.outcome && may_read(run.secret())) answer = ask_for_ranks(run);
    const std::scoped_lock lock(mutex);
    live = std::move(answer);
  }
};

LiveView::LiveView(RunDir run)
    : shared_(std::make_shared<Shared>(run)),
      storage_(between_looks, [shared = shared_] { shared->look(); }),
      slurm_(between_questions, [shared = shared_] { shared->ask_slurm(); }),
      agents_(between_answers, [shared = shared_] { shared->ask_agents(); }) {}

watch::View LiveView::view() const {
  const std::scoped_lock lock(shared_->mutex);
  watch::View view = shared_->seen->view;
  view.live = shared_->live;
  view.status.job = shared_->job;
  if (view.status.job && !view.status.job->unanswered.empty())
    view.gap = (view.status.job->local.empty() ? "SLURM was asked about the job in vain: "
                                               : "it is not known whether the run lives: ") +
               view.status.job->unanswered;
  if (const auto busy = storage_.busy_for_s(); busy && *busy >= slow_s)
    view.gap = fmt::format("no answer from storage for {:.0f} s", *busy);
  view.now = unix_seconds();
  return view;
}

void LiveView::hurry() { storage_.hurry(); }

std::optional<watch::Replay> LiveView::replay() const {
  const std::unique_lock alone(shared_->reading, std::try_to_lock);
  return alone ? std::optional(shared_->watcher.replay()) : std::nullopt;
}

}  // namespace holdfast::launcher
