#include "tests/sim/training.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/vote.hpp"
#include "tests/sim/node.hpp"

namespace holdfast::sim {

using namespace control;

std::uint64_t digest_after(std::int64_t step) {
  std::uint64_t digest = 1;
  for (std::int64_t s = 1; s <= step; ++s) digest = Random(digest ^ static_cast<std::uint64_t>(s)).next();
  return digest;
}
std::string hex(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

std::string shard_text(std::uint64_t digest, int term, int attempt) {
  return fmt::format("{} {} {}", hex(digest), term, attempt);
}

Training::Training(Timeline& timeline, Random& random, Network& network, SharedStorage& storage,
                   Settings settings, Hooks hooks)
    : timeline_(timeline),
      random_(random),
      network_(network),
      storage_(storage),
      settings_(settings),
      hooks_(std::move(hooks)) {}

RankPtr Training::start(const RankEnv& at, const ProcessPtr& process) {
  const AttemptKey key{at.attempt, at.term};
  const auto rank = std::make_shared<Rank>(
      timeline_, network_, at, process,
      Rank::Hooks{[this, key, number = at.rank](const CommitOutcome& o) { commit_outcome(key, number, o); },
                  [this, key, number = at.rank] { end_soon(key, number); }});
  Attempt& a = attempts_[key];
  const bool first = a.ranks.empty();
  a.slots = at.world / at.ranks_per_node;
  a.per_node = at.ranks_per_node;
  a.trusted = at.from.trusted_step;
  a.ranks[at.rank] = rank;
  hooks_.rank_started(*rank);
  if (first) timeline_.after(settings_.launch_s + random_.between(0.1, 0.6), [this, key] { go(key); });
  return rank;
}

void Training::ended(const Rank& rank, int status) {
  if (const auto a = attempts_.find(rank.attempt); a != attempts_.end() && status != 0 && !a->second.ending)
    a->second.victims_end = true;
}

void Training::commit_outcome(AttemptKey key, int rank, const CommitOutcome& what) {
  Attempt& a = attempts_[key];
  if (rank == 0 && a.waits_for == what.step) a.waits_until = timeline_.now;
}

void Training::end_soon(AttemptKey key, int number) {
  Attempt& a = attempts_[key];
  if (!a.ending) return;  // it was another message that was taken
  timeline_.after(random_.between(0.01, 0.2), [this, rank = a.ranks.at(number), code = a.last_code] {
    run(rank->process, [this, rank, code] { hooks_.ends(rank, code); });
  });
}

/// As the trainer does: it says why, and ends.
void Training::fail(const RankPtr& rank, int status, const std::string& why) {
  if (std::exchange(rank->fails, true)) return;
  rank->say(RankFailed{rank->rank, rank->attempt.number, status, why});
  timeline_.after(random_.between(0.02, 0.3), [this, rank, status] {
    run(rank->process, [this, rank, status] { hooks_.ends(rank, status); });
  });
}

void Training::corrupt(const Rank& rank) {
  Attempt& a = attempts_[rank.attempt];
  if (!a.restored || a.ending || a.waits_for >= 0) return;
  a.wrong = rank.rank;
  a.digest ^= 0xbad;
}

void Training::set_phase(Attempt& a, Phase phase) {
  for (auto& [number, rank] : a.ranks)
    if (rank->process->alive && !rank->hung && !rank->process->stopped && rank->phase() != phase)
      rank->set_progress(rank->step(), phase);
}

/// All ranks are alive and can reach each other.
bool Training::together(const Attempt& a) const {
  if (static_cast<int>(a.ranks.size()) < a.slots * a.per_node) return false;
  for (const auto& [number, rank] : a.ranks)
    if (!rank->process->alive || rank->process->stopped || rank->hung || rank->fails) return false;
  for (const auto& [number, one] : a.ranks)
    for (const auto& [other, two] : a.ranks)
      if (!network_.way(one->node, two->node)) return false;
  return true;
}

void Training::go(AttemptKey key) {
  Attempt& a = attempts_[key];
  bool alive = false;
  for (const auto& [number, rank] : a.ranks) alive = alive || rank->process->alive;
  if (!alive && !a.ranks.empty()) return void(attempts_.erase(key));
  const double step_s = settings_.step_s * random_.between(0.8, 1.2);
  timeline_.after(a.restored ? step_s : std::min(step_s, 1.0), [this, key] { go(key); });
  if (a.ending) return;
  if (a.victims_end) {
    // A broken connection in a collective ends the others, which say so.
    const auto ranks = a.ranks;
    for (const auto& [number, rank] : ranks)
      if (rank->process->alive && !rank->process->stopped && !rank->hung && random_.chance(0.7))
        fail(rank, 1, "connection reset by peer");
    return;
  }
  if (!together(a)) return;
  if (!a.restored && storage_.takes(a.ranks.at(0)->node, timeline_.now) > 0)
    return set_phase(a, Phase::restoring);  // it waits
  if (!a.restored) return restore(key, a);
  if (a.doubted) {
    const RankDoubt doubt{0, key.number, a.right_until, {a.wrong}, "replicas", "digests differ"};
    return a.ranks.at(0)->say(doubt);
  }
  if (a.waits_for >= 0) {
    if (timeline_.now >= a.waits_until) return finish(key, a);
    return set_phase(a, Phase::finishing);
  }
  const Rank& speaker = *a.ranks.at(0);
  if (speaker.pause_heard && !speaker.drain_heard) return set_phase(a, Phase::paused);
  if (speaker.drain_heard && a.asked_save < 0) {
    a.asked_save = a.step;
    if (a.step > 0) vote(key, a);
  }
  if (speaker.stop_heard) {
    a.last_code = 75, a.waits_for = a.step,
    a.waits_until = timeline_.now + (a.step > 0 ? settings_.commit_wait_s : 0);
    return;
  }
  if (a.step < settings_.steps) one_step(key, a);
  if (a.step >= settings_.steps && !a.doubted) {
    vote(key, a);
    if (a.doubted) return;
    a.last_code = 0;
    a.waits_for = a.step;
    a.waits_until = timeline_.now + settings_.commit_wait_s;
  }
}

/// The newest complete state: from the memory of the nodes that take part (a slot's own copy, or that of its
/// neighbour), or from the shared level.
void Training::restore(AttemptKey key, Attempt& a) {
  std::int64_t best = 0;
  std::uint64_t digest = digest_after(0);
  std::string level = "fresh";
  const bool readable = storage_.reachable(a.ranks.at(0)->node);
  const auto folder = storage_.run.checkpoints();
  const auto saved = readable ? checkpoint::committed_steps(folder) : std::vector<std::int64_t>();
  for (const std::int64_t step : saved)
    if (step > best && (a.trusted < 0 || step <= a.trusted)) {
      best = step;
      digest = checkpoint::sound_manifest(checkpoint::committed_path(folder, step)).digests.front();
      level = "shared";
    }
  if (a.trusted < 0) {
    std::map<std::int64_t, std::map<int, std::uint64_t>> slots;
    for (const auto& [number, rank] : a.ranks)
      for (const auto& [place, copy] : hooks_.node(rank->node).local)
        if (place.first == a.slots) slots[copy.step][place.second / 2] = copy.digest;
    for (const auto& [step, held] : slots)
      if (step > best && static_cast<int>(held.size()) == a.slots) {
        best = step;
        digest = held.begin()->second;
        level = "local";
      }
  }
  // The trainer asks to be started again when state must exist and it cannot read the folder.
  if (!readable && level == "fresh")
    return fail(a.ranks.at(0), static_cast<int>(Exit::transient), "the checkpoints cannot be read now");
  const double takes_s = level == "shared"  ? settings_.restore_shared_s
                         : level == "local" ? settings_.restore_local_s
                                            : 0;
  if (takes_s > 0 && a.loaded_at < 0) {
    a.loaded_at = timeline_.now + takes_s;
    set_phase(a, Phase::restoring);
  }
  if (timeline_.now < a.loaded_at) return;
  if (a.trusted >= 0) {
    // Later state may be wrong: it must not be found again.
    for (const std::int64_t step : saved)
      if (step > a.trusted) std::filesystem::remove_all(checkpoint::committed_path(folder, step));
    for (const auto& [number, rank] : a.ranks) hooks_.node(rank->node).local.clear();
  }
  a.restored = true;
  a.step = best;
  a.digest = digest;
  hooks_.restored(key, best, digest, level);
  for (auto& [number, rank] : a.ranks) {
    rank->set_progress(best, Phase::data);
    rank->restored({best, level, hex(digest), ""});
  }
  keep_locally(a);
}

void Training::one_step(AttemptKey key, Attempt& a) {
  ++a.step;
  a.digest = Random(a.digest ^ static_cast<std::uint64_t>(a.step)).next();
  reached_ = std::max(reached_, a.step);
  for (auto& [number, rank] : a.ranks) {
    rank->set_progress(a.step, Phase::forward);
  }
  keep_locally(a);
  if (a.step % settings_.verify_every == 0) compare(a);
  if (a.step % settings_.checkpoint_every == 0) vote(key, a);
}

void Training::compare(Attempt& a) {
  a.doubted = a.digest != digest_after(a.step);
  if (!a.doubted) a.right_until = a.step;
  if (a.doubted && a.wrong < 0) a.wrong = 0;  // the restored state was wrong
}

/// Two copies of each, so that a common step always exists: on the slot's own node, and on its neighbour.
void Training::keep_locally(const Attempt& a) {
  const int half = static_cast<int>(a.step % 2);
  for (const auto& [number, rank] : a.ranks) {
    if (number % a.per_node != 0) continue;
    const int slot = number / a.per_node, before = (slot + a.slots - 1) % a.slots;
    auto& local = hooks_.node(rank->node).local;
    local[{a.slots, 2 * slot + half}] = {a.step, a.digest};
    local[{a.slots, 2 * before + half}] = {a.step, a.digest};
  }
}

void Training::vote(AttemptKey key, Attempt& a) {
  compare(a);  // replicas compare before each vote
  if (a.doubted) return;
  if (!a.voted.insert(a.step).second) return;
  for (auto& [number, rank] : a.ranks) {
    const double write_s = random_.between(0.01, 1.0) + storage_.takes(rank->node, timeline_.now);
    timeline_.after(write_s, [this, key, rank = rank, step = a.step, digest = a.digest] {
      run(rank->process,
          [this, key, rank, step, digest] { rank->vote(write_shard(*rank, attempts_[key], step, digest)); });
    });
  }
}

/// One tensor, a slice for each rank. Its digest is the state's: rank 0 brings it, and the others nothing.
RankVote Training::write_shard(const Rank& rank, const Attempt& a, std::int64_t step, std::uint64_t digest) {
  using namespace checkpoint;
  const Generation generation{rank.attempt.term, rank.attempt.number};
  if (!storage_.reachable(rank.node)) return {rank.rank, generation.attempt, step, false, "no space"};
  const int world = a.slots * a.per_node;
  constexpr std::int64_t each = 8;
  Manifest common;
  common.generation = generation;
  common.point.step = step;
  common.facts.world = world;
  common.tensors = {{"model/x", 1, each * world, DType::fp32}};
  common.layout = {world, 1, {{1, each, each}}};
  ShardInfo shard;
  shard.file = shard_file_name(rank.rank);
  shard.data_offset = page_bytes;
  shard.payload_offset = page_bytes + head_bytes(1);
  shard.bytes = shard.payload_offset + page_bytes;
  shard.root = std::string(32, '0');
  const auto folder = temporary_path(storage_.run.checkpoints(), step, generation);
  std::filesystem::create_directory(folder);
  const auto file = files::open(folder / shard.file, O_WRONLY | O_CREAT | O_TRUNC);
  files::append_all(file.get(), shard_text(digest, generation.term, generation.attempt), folder);
  if (::ftruncate(file.get(), shard.bytes) != 0) throw std::runtime_error("no memory for a shard file");
  const std::vector<std::uint64_t> pieces{rank.rank == 0 ? digest : 0};
  const std::int64_t stall_us = 100'000 * (rank.rank + 1);
  return {rank.rank, generation.attempt, step, true, vote_text(rank.rank, common, shard, pieces), stall_us};
}

void Training::finish(AttemptKey key, Attempt& a) {
  a.ending = true;
  for (auto& [number, rank] : a.ranks) {
    rank->set_progress(a.step, Phase::finishing);
    if (a.last_code != 0) {
      end_soon(key, number);
      continue;
    }
    RankFinished finished{number, key.number, std::nullopt};
    if (number == 0) finished.state = FinalState{a.step, a.step * 1000, 1.0, hex(a.digest)};
    rank->say(finished);
  }
}

}  // namespace holdfast::sim
