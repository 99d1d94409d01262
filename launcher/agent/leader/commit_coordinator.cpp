#include "launcher/agent/leader/commit_coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/index/lease.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

namespace {
constexpr Millis commit_shutdown_limit{100};  // a commit that has begun owns all it needs

/// In which retention removes files of other programs.
std::vector<std::filesystem::path> folders_of(const std::filesystem::path& checkpoints,
                                              const config::Checkpoint& settings) {
  std::vector<std::filesystem::path> folders = {checkpoints.parent_path()};  // the run directory
  folders.insert(folders.end(), settings.files_in.begin(), settings.files_in.end());
  return folders;
}
}  // namespace

CommitCoordinator::CommitCoordinator(control::Loop& loop, std::filesystem::path checkpoints,
                                     const config::Checkpoint& settings, Handlers handlers)
    : loop_(loop),
      checkpoints_(std::move(checkpoints)),
      retention_{settings.keep, settings.archive_h, settings.keep_files, folders_of(checkpoints_, settings)},
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

void CommitCoordinator::take(int node, control::NodeVotes votes) {
  if (votes.attempt != generation_.attempt) return;
  const std::int64_t step = votes.step;
  if (const auto known = commit_outcomes_.find(step); known != commit_outcomes_.end())
    return handlers_.repeat(node, known->second);
  const auto [entry, first] = pending_.try_emplace(step);
  Pending& pending = entry->second;
  if (first) {
    pending.commit = std::make_shared<checkpoint::Commit>(checkpoints_, step, generation_, world_);
    pending.answered.resize(as_size(world_));
    pending.missing = world_;
    pending.first = loop_.now();
    pending.limit = loop_.after(vote_limit_, [this, step] {
      const auto late = pending_.find(step);
      if (late == pending_.end() || late->second.missing == 0) return;
      const auto& answered = late->second.answered;
      conclude(step, generation_.attempt, false,
               fmt::format("rank {} and perhaps others did not vote in time",
                           std::find(answered.begin(), answered.end(), false) - answered.begin()));
    });
  }
  if (pending.missing == 0) return;  // a repeated vote; its outcome is coming
  for (const auto& vote : votes.votes)
    if (vote.rank < world_ && !pending.answered[vote.rank]) {
      pending.answered[vote.rank] = true;
      pending.stall_us = std::max(pending.stall_us, vote.stall_us);
      --pending.missing;
    }
  worker_.run([commit = pending.commit, votes = std::move(votes)] {
    const auto payloads = votes.each_payload();
    for (std::size_t i = 0; i < payloads.size(); ++i)
      commit->add(votes.votes[i].rank, votes.votes[i].ok, std::string(payloads[i]));
  });
  if (pending.missing > 0) return;
  pending.last = loop_.now();
  settle(step);
}

void CommitCoordinator::settle(std::int64_t step) {
  if (busy_) return;  // conclude() comes back to it
  const auto it = pending_.find(step);
  if (it == pending_.end()) return;
  busy_ = true;
  struct Outcome {
    bool durable = false;
    std::string note;
    bool committed = false;  // else they are files that the program has only counted
    bool files = false;
  };
  worker_.ask(
      [commit = std::move(it->second.commit), still_leading = handlers_.still_leading]() -> Outcome {
        Outcome out{false, commit->why(), false, false};
        try {
          if (!commit->failed() && !still_leading())
            out.note = "another leader has taken over";
          else if (!commit->failed()) {
            const auto committed = commit->commit();
            out.note = committed.note;
            out.committed = !committed.path.empty();
            out.files = committed.files;
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
        if (out.committed) to_tidy_ = {generation, step, !out.files || retention_.keep_files > 0};
        conclude(step, generation.attempt, out.durable, out.note);
      });
}

void CommitCoordinator::conclude(std::int64_t step, int attempt, bool durable, const std::string& note) {
  const control::CommitOutcome outcome{attempt, step, durable, durable ? "" : note};
  double stalled_s = 0;
  if (attempt == generation_.attempt) {
    commit_outcomes_[step] = outcome;
    const auto settled = pending_.extract(step);
    if (settled) stalled_s = 1e-6 * static_cast<double>(settled.mapped().stall_us);
    if (settled && settled.mapped().missing == 0)
      log::info("checkpoint {}: all votes came in {:.3f} s, and it was decided {:.3f} s after the last", step,
                std::chrono::duration<double>(settled.mapped().last - settled.mapped().first).count(),
                std::chrono::duration<double>(loop_.now() - settled.mapped().last).count());
  }
  handlers_.decided(outcome, note, stalled_s);
  for (const auto& [next, pending] : pending_)
    if (pending.missing == 0) return settle(next);
}

/// One removal at a time; commits that come meanwhile share the next one.
void CommitCoordinator::tidy() {
  if (tidying_ || !to_tidy_) return;
  tidying_ = true;
  const ToTidy what = *std::exchange(to_tidy_, std::nullopt);
  remover_.ask(
      [checkpoints = checkpoints_, retention = retention_, what]() -> std::vector<std::int64_t> {
        try {
          if (what.retains) return checkpoint::tidy(checkpoints, retention, what.generation, what.step);
          checkpoint::sweep(checkpoints, what.generation, what.step);
          checkpoint::sweep_leases(checkpoints);
          return {};
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
