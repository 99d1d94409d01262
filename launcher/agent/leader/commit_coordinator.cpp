#include "launcher/agent/leader/commit_coordinator.hpp"

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

namespace {
constexpr Millis commit_shutdown_limit{100};  // a commit that has begun owns all it needs
}

CommitCoordinator::CommitCoordinator(control::Loop& loop, std::filesystem::path checkpoints,
                                     const config::Checkpoint& settings, Handlers handlers)
    : loop_(loop),
      checkpoints_(std::move(checkpoints)),
      retention_{settings.keep, settings.archive_h},
      vote_limit_(settings.commit_s),
      handlers_(std::move(handlers)),
      worker_(loop, commit_shutdown_limit),
      remover_(loop, commit_shutdown_limit) {}

void CommitCoordinator::begin(checkpoint::Generation generation, int world,
                              const std::map<std::int64_t, bool>& decided) {
  generation_ = generation;
  world_ = world;
  pending_.clear(), commit_outcomes_.clear();
  for (const auto& [step, durable] : decided)
    commit_outcomes_[step] = {generation.attempt, step, durable,
                              durable ? "" : "an earlier leader dropped it"};
}

void CommitCoordinator::vote(const control::RankVote& vote) {
  if (vote.attempt != generation_.attempt) return;
  if (const auto known = commit_outcomes_.find(vote.step); known != commit_outcomes_.end())
    return handlers_.repeat(known->second);
  Pending& pending = pending_[vote.step];
  if (!pending.commit) {
    pending.commit = std::make_shared<checkpoint::Commit>(checkpoints_, vote.step, generation_, world_);
    pending.limit = loop_.after(vote_limit_, [this, step = vote.step] {
      const auto late = pending_.find(step);
      if (late == pending_.end() || late->second.commit->complete()) return;
      const auto missing = late->second.commit->missing();
      conclude(step, generation_.attempt, false,
               "rank " + std::to_string(missing.empty() ? -1 : missing.front()) +
                   " and perhaps others did not vote in time");
    });
  }
  pending.commit->add(vote.rank, vote.ok, vote.payload);
  if (pending.commit->complete()) settle(vote.step);
}

void CommitCoordinator::settle(std::int64_t step) {
  if (busy_) return;  // conclude() comes back to it
  const auto it = pending_.find(step);
  if (it == pending_.end()) return;
  busy_ = true;
  struct Outcome {
    bool durable = false;
    std::string note;
  };
  worker_.ask(
      [commit = it->second.commit, still_leading = handlers_.still_leading]() -> Outcome {
        Outcome out{false, commit->why()};
        try {
          if (!commit->failed() && !still_leading())
            out.note = "another leader has taken over";
          else if (!commit->failed()) {
            out.note = commit->commit().note;
            out.durable = true;
          }
        } catch (const std::exception& error) {
          out.note = error.what();
        }
        if (!out.durable) commit->drop();
        return out;
      },
      [this, step, generation = generation_](const Outcome& out) {
        busy_ = false;
        if (out.durable) to_tidy_ = {generation, step};
        conclude(step, generation.attempt, out.durable, out.note);
        tidy();
      });
}

void CommitCoordinator::conclude(std::int64_t step, int attempt, bool durable, const std::string& note) {
  const control::CommitOutcome outcome{attempt, step, durable, durable ? "" : note};
  if (attempt == generation_.attempt) {
    commit_outcomes_[step] = outcome;
    pending_.erase(step);
  }
  handlers_.decided(outcome, note);
  for (const auto& [next, pending] : pending_)
    if (pending.commit->complete()) return settle(next);
}

/// One removal at a time; commits that come meanwhile share the next one.
void CommitCoordinator::tidy() {
  if (tidying_ || !to_tidy_) return;
  tidying_ = true;
  const auto [generation, step] = *std::exchange(to_tidy_, std::nullopt);
  remover_.ask(
      [checkpoints = checkpoints_, retention = retention_, generation, step]() -> std::vector<std::int64_t> {
        try {
          return checkpoint::tidy(checkpoints, retention, generation, step);
        } catch (const std::exception& error) {
          log::warn("old checkpoints could not be removed: {}", error.what());
          return {};
        }
      },
      [this](const std::vector<std::int64_t>& steps) {
        tidying_ = false;
        if (!steps.empty() && handlers_.removed) handlers_.removed(steps);
        tidy();
      });
}

}  // namespace holdfast::launcher
