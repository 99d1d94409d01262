// The training thread begins a save and hands it over; the saver's thread (serve) takes the jobs in their
// order and persists each: write() waits for the copy, writes the shard and releases the snapshot,
// before_vote() has the metrics of earlier steps written, and then this rank votes. In a supervised run the
// vote goes to the agent. In bare mode the other ranks lay it into the checkpoint's folder as a file, and
// rank 0 collects them, commits or drops (commit), records the result, and leaves old checkpoints to the
// thread of tidy().
//
// One snapshot is held at a time. A save that finds the one before still held waits as begin() says, or
// becomes a job without a snapshot, which votes no, so that nobody waits for its vote in vain. What fails in
// writing, voting or committing is logged and kept for why(), and the thread goes on. `begun_`, `newest_` and
// `stuck_` belong to the training thread, jobs and totals are guarded by `mutex_`.
#include "src/train/save/saver.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "checkpoint/index/retention.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/train/save/bare_votes.hpp"
#include "src/train/state/piece_index.hpp"

namespace holdfast::train {

Saver::Saver(const RunDir& dir, const config::Checkpoint& settings, checkpoint::Generation generation,
             Parts parts, Snapshots& snapshots, comm::Communicator& world, control::RankLink& link)
    : dir_(dir),
      settings_(settings),
      generation_(generation),
      parts_(std::move(parts)),
      snapshots_(snapshots),
      world_(world),
      link_(link) {
  for (int buffer = 0; buffer < snapshots_.buffers(); ++buffer)
    owned_.push_back(parts_in(snapshots_.view(buffer), parts_.owned.pieces));
  jobs_.reserve(16);  // hand_over() is a part of the step, which allocates nothing
  thread_ = std::thread([this] { serve(); });
  if (!link_.supervised() && world_.rank() == 0) tidier_ = std::thread([this] { tidy(); });
}

Saver::~Saver() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (tidier_.joinable()) tidier_.join();
}

void Saver::begin(const checkpoint::RunPoint& point, bool must, double stalled_s) {
  expects(!begun_, "one save is begun at a time");
  const auto start = Clock::now();
  newest_ = point.step;
  begun_ = Job{point, std::nullopt, {}, 0};
  if (wait_written(point.step, must)) begun_->snapshot = snapshots_.hold();
  const double waited_s = seconds_since(start);
  begun_->stalled_s = stalled_s + waited_s;
  const std::scoped_lock lock(mutex_);
  ++(begun_->snapshot ? totals_.begun : totals_.skipped);
  totals_.stall_s += waited_s;
}

bool Saver::wait_written(std::int64_t step, bool must) {
  bool written = !snapshots_.holds();
  const bool waits = must || (settings_.when_busy == config::WhenBusy::wait && !stuck_);
  if (!written && waits) {
    link_.progress(step, control::Phase::finishing);  // the storage's pace says nothing of a rank
    std::chrono::nanoseconds patience = std::chrono::seconds(settings_.commit_s);
    if (!must) {
      const auto twice =
          std::chrono::duration_cast<Millis>(std::chrono::duration<double>(2 * totals().persist_s));
      patience = std::min<std::chrono::nanoseconds>(patience, std::max(parts_.shortest_wait, twice));
    }
    written = snapshots_.wait_released(Deadline::in(patience));
    if (!written && world_.rank() == 0)
      log::warn(
          "the shared storage has not taken a checkpoint for {:.0f} s: the one of step {} is skipped, and so "
          "are those after it until it has",
          std::chrono::duration<double>(patience).count(), step);
  }
  stuck_ = !written && (stuck_ || waits);
  return written;
}

void Saver::hand_over() {
  if (!begun_) return;
  link_.progress(begun_->point.step, control::Phase::checkpoint);
  begun_->begun = Clock::now();
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(*begun_));
  }
  begun_.reset();
  changed_.notify_all();
}

bool Saver::wait_durable() {
  if (newest_ < 0) return false;
  hand_over();
  link_.progress(newest_, control::Phase::finishing);
  bool mine = false;
  {
    std::unique_lock lock(mutex_);
    const bool written =
        changed_.wait_for(lock, std::chrono::seconds(settings_.commit_s), [this] { return jobs_.empty(); });
    if (!written) {
      failed_ = newest_;
      why_ = fmt::format("the shared storage did not take it within {} s", settings_.commit_s);
    }
    mine = durable_ == newest_;
  }
  constexpr int to_commit_s = 30;  // the leader waits commit_s for votes, and then has its own work to do
  if (link_.supervised())
    mine = link_.wait_commit(newest_, Deadline::in(std::chrono::seconds(settings_.commit_s + to_commit_s)));
  // A rank that missed the message must not end differently from the others.
  std::uint64_t heard[] = {mine ? 1u : 0u};
  world_.all_reduce(heard, comm::Scalar::max);
  return heard[0] != 0;
}

std::string Saver::why() {
  const std::scoped_lock lock(mutex_);
  return failed_ == newest_ ? why_ : "";
}

SaveTotals Saver::totals() {
  const std::scoped_lock lock(mutex_);
  return totals_;
}

void Saver::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    Job job = jobs_.front();
    lock.unlock();
    persist(job);
    lock.lock();
    jobs_.erase(jobs_.begin());
    changed_.notify_all();
  }
}

void Saver::persist(const Job& job) {
  const Outcome outcome = write(job);
  if (parts_.before_vote) parts_.before_vote();
  if (link_.supervised())
    link_.vote(job.point.step, outcome.ok, outcome.payload, job.stalled_s);
  else if (world_.rank() == 0)
    commit(job, outcome);
  else
    vote_in_folder(job, outcome);
  const std::scoped_lock lock(mutex_);
  ++totals_.settled;
  totals_.persist_s = seconds_since(job.begun);
}

Saver::Outcome Saver::write(const Job& job) {
  if (!job.snapshot) return {false, "skipped: the save before it was still being written"};
  Outcome outcome;
  checkpoint::WriteCost cost;
  try {
    job.snapshot->copied.wait();
    Written written = parts_.write(job.point, owned_[as_size(job.snapshot->buffer)].pieces);
    outcome.payload = std::move(written.vote);
    cost = written.cost;
  } catch (const std::exception& error) {
    outcome = {false, error.what()};
    log::error("rank {} could not save step {}: {}", world_.rank(), job.point.step, error.what());
    failed(job.point.step, error.what());
  }
  snapshots_.release();
  const std::scoped_lock lock(mutex_);
  totals_.cost = cost;
  return outcome;
}

void Saver::vote_in_folder(const Job& job, const Outcome& outcome) {
  try {
    cast_vote(checkpoint::temporary_path(dir_.checkpoints(), job.point.step, generation_), world_.rank(),
              outcome.ok, outcome.payload);
  } catch (const std::exception& error) {
    log::error("rank {} cannot vote on the checkpoint of step {}: {}", world_.rank(), job.point.step,
               error.what());
    if (outcome.ok) failed(job.point.step, error.what());
  }
}

void Saver::commit(const Job& job, const Outcome& outcome) {
  checkpoint::Commit commit(dir_.checkpoints(), job.point.step, generation_, world_.size());
  try {
    commit.add(0, outcome.ok, outcome.payload);
    if (!commit.failed())
      collect_votes(checkpoint::temporary_path(dir_.checkpoints(), job.point.step, generation_), commit,
                    Deadline::in(std::chrono::seconds(settings_.commit_s)), ending_);
    if (commit.failed()) throw Error(Exit::runtime, commit.why());
    if (!commit.complete())
      throw Error(Exit::runtime, fmt::format("no vote from rank {}", fmt::join(commit.missing(), ", ")),
                  ending_ ? "the run is ending"
                          : fmt::format("within checkpoint.commit_s = {} s", settings_.commit_s));
    const checkpoint::Committed done = commit.commit();
    log::info("the checkpoint of step {} is durable in {}", job.point.step, done.path.string());
    if (!done.note.empty()) log::warn("{}", done.note);
    record(std::array{job.point.step}, {});
    const std::scoped_lock lock(mutex_);
    durable_ = job.point.step;
    to_tidy_ = job.point.step;
  } catch (const std::exception& error) {
    commit.drop();
    log::error("the checkpoint of step {} is dropped ({}); training goes on", job.point.step, error.what());
    if (outcome.ok) failed(job.point.step, error.what());
  }
}

void Saver::record(std::span<const std::int64_t> durable, std::span<const std::int64_t> removed) {
  const std::scoped_lock lock(record_mutex_);
  try {
    checkpoint::record_steps(dir_.durable(), generation_.attempt, durable, removed);
  } catch (const std::exception& error) {
    log::warn("the record of checkpoints could not be written: {}", error.what());
  }
}

/// In a thread of its own: the commit outcome is known, and nobody waits for deletions.
void Saver::tidy() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || to_tidy_; });
    if (!to_tidy_) return;
    const std::int64_t step = *std::exchange(to_tidy_, std::nullopt);
    lock.unlock();
    try {
      const auto removed =
          checkpoint::tidy(dir_.checkpoints(), {settings_.keep, settings_.archive_h}, generation_, step);
      if (!removed.empty()) record({}, removed);
    } catch (const std::exception& error) {
      log::warn("old checkpoints could not be removed: {}", error.what());
    }
    lock.lock();
  }
}

void Saver::failed(std::int64_t step, std::string why) {
  const std::scoped_lock lock(mutex_);
  ++totals_.failed;
  failed_ = step;
  why_ = std::move(why);
}

}  // namespace holdfast::train
