#include "launcher/agent/commit_desk.hpp"

#include "src/base/error.hpp"

namespace holdfast::launcher {

CommitDesk::CommitDesk(control::Loop& loop, std::filesystem::path checkpoints, config::Checkpoint settings,
                       std::function<bool()> still_leading,
                       std::function<void(const control::Verdict&, const std::string&)> decided)
    : loop_(loop),
      checkpoints_(std::move(checkpoints)),
      settings_(settings),
      still_leading_(std::move(still_leading)),
      decided_(std::move(decided)) {}

CommitDesk::~CommitDesk() {
  *alive_ = false;
  if (worker_.joinable()) worker_.join();
}

void CommitDesk::begin(checkpoint::Generation generation, int world) {
  generation_ = generation, world_ = world;
  pending_.clear(), verdicts_.clear();
}

void CommitDesk::vote(const control::RankVote& vote) {
  if (vote.attempt != generation_.attempt) return;
  if (const auto known = verdicts_.find(vote.step); known != verdicts_.end())
    return decided_(known->second, "");
  Pending& pending = pending_[vote.step];
  if (!pending.commit) {
    pending.commit = std::make_shared<checkpoint::Commit>(checkpoints_, vote.step, generation_, world_);
    pending.limit = loop_.after(std::chrono::seconds(settings_.commit_s), [this, step = vote.step] {
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

void CommitDesk::settle(std::int64_t step) {
  if (busy_) return;  // conclude() comes back to it
  const auto it = pending_.find(step);
  if (it == pending_.end()) return;
  busy_ = true;
  if (worker_.joinable()) worker_.join();
  worker_ =
      std::thread([this, alive = alive_, commit = it->second.commit, step, attempt = generation_.attempt] {
        bool durable = false;
        std::string note = commit->why();
        try {
          if (!commit->failed() && !still_leading_())
            note = "another leader has taken over";
          else if (!commit->failed())
            note = commit->commit(settings_.keep).note, durable = true;
        } catch (const std::exception& error) {
          note = error.what();
        }
        if (!durable) commit->drop();
        loop_.post([this, alive, step, attempt, durable, note] {
          if (!*alive) return;
          busy_ = false;
          conclude(step, attempt, durable, note);
        });
      });
}

void CommitDesk::conclude(std::int64_t step, int attempt, bool durable, const std::string& note) {
  const control::Verdict verdict{attempt, step, durable, durable ? "" : note};
  if (attempt == generation_.attempt) verdicts_[step] = verdict, pending_.erase(step);
  decided_(verdict, note);
  for (const auto& [next, pending] : pending_)
    if (pending.commit->complete()) return settle(next);
}

}  // namespace holdfast::launcher
