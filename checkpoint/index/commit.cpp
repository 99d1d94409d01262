// add() takes one vote after the other. The first "no", or the first vote that is wrong (another step or
// generation, a second and different one, a state that differs from the others'), is remembered as why(), and
// the checkpoint can then only be dropped. With a yes of every rank, commit() looks whether the step is there
// already, makes and proves the manifest, compares sizes of shard files with the votes, and calls put().
//
// put() writes manifest and commit record into the temporary folder, syncs it, and renames it to step-N.
// Before that rename nothing is committed, and a crash leaves a temporary folder, which a sweep removes. An
// older step-N is exchanged with the new one in one system call; where the file system cannot do that, there
// is no step-N between two renames, and the older one is renamed back if the second of them fails.
//
// The files of another program lie elsewhere: for those, commit_files() makes a folder with the manifest
// alone, and only if every rank that has files has named them.
#include "checkpoint/index/commit.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2
#include <sys/stat.h>

#include <cerrno>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/hash.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

void write_durably(const fs::path& path, const std::string& text) {
  const fs::path aside = files::name_aside(path);
  const files::Fd fd = files::open(aside, O_WRONLY | O_CREAT | O_EXCL);
  files::append_all(fd.get(), text, aside);
  files::sync(fd.get(), aside);
  if (::rename(aside.c_str(), path.c_str()) != 0)
    throw system_error("cannot rename " + aside.string(), errno);
}

void check_size(const fs::path& path, std::int64_t bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw system_error("cannot look at " + path.string(), errno);
  if (info.st_size != bytes)
    throw Error(Exit::runtime, path.string() + " is not what its writer voted for",
                std::to_string(info.st_size) + " bytes, not " + std::to_string(bytes));
}

/// Without links; what is not absolute stays as it is. Throws Error.
std::string real_path(const std::string& folder) {
  if (!folder.starts_with('/')) return folder;
  std::error_code failed;
  const fs::path real = fs::canonical(folder, failed);
  if (failed) throw system_error("cannot look at " + folder, failed.value());
  return real.string();
}

fs::path parent_of(const fs::path& folder) {
  const fs::path parent = fs::absolute(folder).lexically_normal();
  return (parent.has_filename() ? parent : parent.parent_path()).parent_path();
}

/// The commit point. A `final_path` that exists is put aside: it may be of use as long as no later step is
/// durable. Where the file system can exchange names, there is a step-N at every moment.
void rename_into_place(const fs::path& checkpoints, const fs::path& temporary, const fs::path& final_path,
                       std::int64_t step, std::string& note) {
  const auto failed = [&](int reason) {
    return system_error("cannot commit " + final_path.string(), reason);
  };
  if (!files::entry_exists_or_fail(
          final_path)) {  // a plain rename never replaces a folder with something in it
    if (::rename(temporary.c_str(), final_path.c_str()) != 0) throw failed(errno);
    return;
  }
  const auto say = [&](const fs::path& older) {
    note = "the older " + final_path.filename().string() + " is put aside as " + older.filename().string();
  };
  // Under this name first: what the exchange leaves there is no temporary folder, which a sweep may remove.
  const fs::path aside = free_replaced_path(checkpoints, step);
  say(aside);
  if (::rename(temporary.c_str(), aside.c_str()) != 0) throw failed(errno);
  if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) return;
  int reason = errno;
  if (reason == EINVAL || reason == ENOSYS || reason == EOPNOTSUPP) {
    const fs::path older = free_replaced_path(checkpoints, step);
    say(older);
    const bool moved = ::rename(final_path.c_str(), older.c_str()) == 0;
    if (moved && ::rename(aside.c_str(), final_path.c_str()) == 0) return;
    reason = errno;
    if (moved) ::rename(older.c_str(), final_path.c_str());
  }
  if (::rename(aside.c_str(), temporary.c_str()) != 0) discard(checkpoints, aside, step);
  throw failed(reason);
}

}  // namespace

Commit::Commit(fs::path checkpoints, std::int64_t step, Generation generation, int world)
    : checkpoints_(std::move(checkpoints)),
      step_(step),
      generation_(generation),
      world_(world),
      answers_(as_size(world)) {
  expects(world > 0, "a checkpoint has at least one writer");
}

void Commit::add(int rank, bool ok, const std::string& payload) {
  const auto complain = [&](const std::string& why) {
    if (why_.empty()) why_ = "rank " + std::to_string(rank) + ": " + why;
  };
  if (rank < 0 || rank >= world_) return complain("there is no such rank among " + std::to_string(world_));
  const std::string hash = xxh3_128(ok ? "yes" : "no", payload);
  auto& answer = answers_[rank];
  if (answer) return answer->payload_hash == hash ? void() : complain("voted twice, and differently");
  answer = Answer{hash, {}, {}};
  ++answered_;
  if (!ok) return complain(payload.empty() ? "could not write its shard" : payload);
  try {
    answer->files = parse_files_vote(payload);
    if (answer->files) {
      for (const auto& other : answers_)
        if (other && other->vote) throw Damaged("the vote is not usable", "others have voted on shard files");
      return;
    }
    for (const auto& other : answers_)
      if (other && other->files)
        throw Damaged("the vote is not usable", "others have voted on files of their own");
    take(rank, parse_vote(payload), *answer);
  } catch (const std::exception& e) {
    complain(e.what());
  }
}

/// Each vote must speak of this checkpoint, and all of them of one state.
void Commit::take(int rank, Vote vote, Answer& answer) {
  if (vote.rank != rank)
    throw Damaged("the vote is not usable", "it is that of rank " + std::to_string(vote.rank));
  if (vote.common.point.step != step_ || vote.common.generation != generation_)
    throw Damaged(
        "the vote is not usable",
        "it belongs to " + temporary_path({}, vote.common.point.step, vote.common.generation).string());
  if (vote.has_common != (rank == 0))
    throw Damaged("the vote is not usable", "rank 0 and only rank 0 brings the common part");
  for (const auto& other : answers_)
    if (other && other->vote && other->vote->agree != vote.agree)
      throw Damaged("the ranks do not agree on the state", "rank " + std::to_string(rank) + " and rank " +
                                                               std::to_string(other->vote->rank) +
                                                               " differ in step, facts or tensors");
  answer.vote = std::move(vote);
}

std::optional<FilesVote> Commit::files() const {
  std::optional<FilesVote> sum;
  for (const auto& answer : answers_) {
    if (!answer || !answer->files) continue;
    if (!sum) sum = FilesVote{};
    if (sum->path.empty()) sum->path = answer->files->path;
    sum->files += answer->files->files;
    sum->bytes += answer->files->bytes;
  }
  return sum;
}

std::vector<int> Commit::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_; ++rank)
    if (!answers_[rank]) ranks.push_back(rank);
  return ranks;
}

Manifest Commit::manifest() const {
  Manifest manifest = answers_[0]->vote->common;
  prove_layout(manifest.tensors, manifest.layout);
  manifest.digests.assign(manifest.tensors.size(), 0);
  for (const auto& answer : answers_) {
    const Vote& vote = *answer->vote;
    manifest.shards.push_back(vote.shard);
    const auto spans = spans_of(manifest.tensors, manifest.layout, vote.rank);
    if (vote.piece_digests.size() != spans.size())
      throw Damaged("the vote of rank " + std::to_string(vote.rank) + " is not usable",
                    std::to_string(vote.piece_digests.size()) + " digests of " +
                        std::to_string(spans.size()) + " pieces");
    for (std::size_t i = 0; i < spans.size(); ++i) manifest.digests[spans[i].tensor] += vote.piece_digests[i];
  }
  manifest.state_digest = state_digest(manifest.tensors, manifest.digests);
  prove(manifest);
  return manifest;
}

/// The ranks that have files have named them, and these lie where Holdfast has nothing of its own.
bool Commit::all_are_named(const FilesVote& sum, std::string& note) const {
  note = fmt::format("{} files, {} bytes, which the program has written below {}", sum.files, sum.bytes,
                     sum.path);
  bool any = false;
  std::string unnamed;
  for (const auto& answer : answers_) {
    const FilesVote& vote = *answer->files;
    any = any || (vote.list && !vote.list->empty());
    if (!vote.list && vote.files > 0 && unnamed.empty())
      unnamed = "; rank " + std::to_string(&answer - answers_.data()) + " has not named its files";
  }
  if (any) note += unnamed;
  return any && unnamed.empty();
}

FilesManifest Commit::files_manifest() const {
  FilesManifest manifest;
  manifest.generation = generation_;
  manifest.step = step_;
  manifest.world = world_;
  manifest.checkpoints = fs::weakly_canonical(checkpoints_).string();
  std::vector<NamedFiles> parts;
  for (int rank = 0; rank < world_; ++rank) {
    const FilesVote& vote = *answers_[rank]->files;
    if (!vote.list || vote.list->empty()) continue;
    parts.push_back({real_path(vote.path), *vote.list});
    for (ListedFile& file : parts.back().files) file.rank = rank;
  }
  put_together(parts, manifest);
  prove(manifest);
  return manifest;
}

Committed Commit::commit_files() {
  Committed committed{{}, {}, true};
  if (!all_are_named(*files(), committed.note)) return committed;
  const FilesManifest whole = files_manifest();
  if ((fs::weakly_canonical(whole.folder).string() + "/").starts_with(whole.checkpoints + "/")) {
    committed.note += "; they have no manifest, since this is where Holdfast keeps its own";
    return committed;
  }
  for (const ListedFile& file : whole.files) check_size(path_of(whole, file), file.bytes);
  committed.path = committed_path(checkpoints_, step_);
  committed.note =
      fmt::format("{} files, {} bytes, below {}", whole.files.size(), total_bytes(whole), whole.folder);
  if (is_there_already(committed)) return committed;
  fs::create_directories(temporary_path(checkpoints_, step_, generation_));
  const std::string text = to_text(whole);
  put(text, to_text(commit_record_of(whole, text, static_cast<std::int64_t>(unix_seconds()))), committed);
  return committed;
}

/// A sound one of this or a higher generation counts as this checkpoint.
bool Commit::is_there_already(Committed& committed) {
  if (!files::entry_exists_or_fail(committed.path)) return false;
  const auto there = condition_of(committed.path).generation();
  if (!there || *there < generation_) return false;
  committed.note = committed.path.filename().string() + " was already committed";
  files::sync_folder(checkpoints_);
  drop();
  return true;
}

/// All but the files of the checkpoint; the last thing is its name.
void Commit::put(const std::string& manifest, const std::string& record, Committed& committed) {
  const fs::path temporary = temporary_path(checkpoints_, step_, generation_);
  write_durably(temporary / manifest_file_name, manifest);
  write_durably(temporary / commit_record_name, record);
  files::sync_folder(temporary);
  files::sync_folder(parent_of(checkpoints_));  // the folder itself may be as new as its first checkpoint
  rename_into_place(checkpoints_, temporary, committed.path, step_, committed.note);
  files::sync_folder(checkpoints_);
}

Committed Commit::commit() {
  expects(complete() && !failed(), "commit needs a yes from every rank");
  if (files()) return commit_files();
  Committed committed{committed_path(checkpoints_, step_), {}, false};
  if (is_there_already(committed)) return committed;
  const Manifest whole = manifest();
  const fs::path temporary = temporary_path(checkpoints_, step_, generation_);
  for (const ShardInfo& shard : whole.shards) check_size(temporary / shard.file, shard.bytes);
  const std::string text = to_text(whole);
  put(text, to_text(commit_record_of(whole, text, static_cast<std::int64_t>(unix_seconds()))), committed);
  return committed;
}

void Commit::drop() noexcept {
  try {
    discard(checkpoints_, temporary_path(checkpoints_, step_, generation_), step_);
  } catch (const std::exception&) {
    // No memory for the name: the next sweep takes it.
  }
}

}  // namespace holdfast::checkpoint
