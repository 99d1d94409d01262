#include "src/train/saver.hpp"

#include "checkpoint/commit.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::train {

Saver::Saver(const RunDir& dir, const config::Checkpoint& settings, const StateViews& views,
             const checkpoint::Facts& facts, checkpoint::Generation generation, comm::Communicator& world,
             control::RankLink& link)
    : dir_(dir),
      settings_(settings),
      views_(views),
      generation_(generation),
      world_(world),
      link_(link),
      writer_(dir.checkpoints(), world.rank(), generation, views.owned, views.writers, facts) {}

StateDigest Saver::save(const checkpoint::RunPoint& point) {
  link_.progress(point.step, control::Phase::checkpoint);
  StateDigest digest = digest_state(views_.owned, world_);
  newest_ = point.step;
  why_.clear();
  bool ok = true;
  std::string payload;
  try {
    payload = writer_.write(point, digest.tensors);
  } catch (const Error& error) {
    ok = false;
    payload = why_ = error.what();
    log::error("step {} is not saved by rank {}: {}", point.step, world_.rank(), why_);
  }
  if (link_.supervised())
    link_.vote(point.step, ok, payload);
  else
    commit_here(point, ok, payload);
  return digest;
}

void Saver::commit_here(const checkpoint::RunPoint& point, bool ok, const std::string& payload) {
  checkpoint::Commit commit(dir_.checkpoints(), point.step, generation_, world_.size());
  for (int rank = 0; rank < world_.size(); ++rank) {
    const std::string vote =
        comm::broadcast_text(world_, world_.rank() == rank ? (ok ? "y" : "n") + payload : "", rank);
    if (world_.rank() == 0) commit.add(rank, vote.starts_with('y'), vote.substr(1));
  }
  std::string why;
  if (world_.rank() == 0) {
    try {
      if (commit.failed()) throw Error(Exit::runtime, commit.why());
      const checkpoint::Committed done = commit.commit(settings_.keep);
      log::info("step {} saved in {}", point.step, done.path.string());
      if (!done.note.empty()) log::warn("{}", done.note);
    } catch (const Error& error) {
      why = error.what();
      commit.drop();
      log::error("the checkpoint of step {} is dropped ({}); training goes on", point.step, why);
    }
  }
  why_ = comm::broadcast_text(world_, why, 0);
  durable_ = why_.empty();
}

bool Saver::wait_durable() {
  if (newest_ < 0) return false;
  if (!link_.supervised()) return durable_;
  constexpr int to_commit_s = 30;  // the leader waits commit_s for votes, and then has its own work to do
  const bool mine =
      link_.wait_verdict(newest_, Deadline::in(std::chrono::seconds(settings_.commit_s + to_commit_s)));
  // A rank that missed the message must not end differently from the others.
  std::uint64_t heard[] = {mine ? 1u : 0u};
  world_.all_reduce(heard, comm::Scalar::max);
  return heard[0] != 0;
}

}  // namespace holdfast::train
