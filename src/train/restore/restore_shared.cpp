// Rank 0 looks at the folder, and the others get its findings as text: an Announced, and the text of the
// manifest, which each rank parses when it needs it. What fails on rank 0 fails on all.
//
// add_older() goes through the steps that are on record or in the folder, newest first. A checkpoint that is
// damaged is passed over with a note; one that is missing or cannot be read is `blocked`, and ends the list.
// wait() pauses, takes off the list what is known of it so far, and lets add_older() look at it again, until
// patience is over. A checkpoint with shards that are cut is still of use where the ranks have snapshots of
// its point and as many ranks have written it as there are now.
//
// add() takes the checkpoint that run.resume names, under a lease, so that the run that owns it does not
// remove it meanwhile. manifest() refuses another model, and another arithmetic unless that is allowed.
#include "src/train/restore/restore_shared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"
#include "src/preflight/run.hpp"
#include "src/train/common/agree.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void check_facts(const checkpoint::Facts& found, const checkpoint::Facts& expected, const fs::path& path,
                 bool other_numerics, bool speaks) {
  const std::string difference = preflight::require_facts(found, expected, path, other_numerics);
  if (found.numerics == checkpoint::imported_numerics || !speaks) return;
  if (!difference.empty())
    log::warn("from here on bits differ from those of the run before the checkpoint: {}", difference);
  if (found.data_identity != expected.data_identity)
    log::warn("the data differ from those of the checkpoint ({}; now {})", found.data_identity,
              expected.data_identity);
}

/// What the other ranks need to know of a checkpoint to choose.
struct Announced {
  std::string path;  ///< "": there is none
  PointId point;
  std::vector<int> bad_shards;
  int shards = 0;
  std::vector<std::string> notes;
  std::int64_t newest_known = -1;
  std::optional<Blocked> blocked;  ///< with a path: of that checkpoint, whose bad shards may only be missing
  std::string manifest;            ///< its text; passed on beside text()

  std::string text() const {
    json block;
    if (blocked)
      block = json::array({blocked->step, static_cast<int>(blocked->why.exit()), blocked->why.problem(),
                           blocked->why.why(), blocked->why.hint(), blocked->over});
    return json::array({path, point.samples, point.step, point.tokens, point.memory, bad_shards, shards,
                        notes, newest_known, block})
        .dump(-1, ' ', false, json::error_handler_t::replace);
  }
  static Announced from(const std::string& text) {
    const json j = json_from(text);
    Announced out{j.at(0), {j.at(1), j.at(2), j.at(3), j.at(4)}, j.at(5), j.at(6), j.at(7), j.at(8), {}, {}};
    if (const json& b = j.at(9); !b.is_null())
      out.blocked =
          Blocked{b.at(0), Error(static_cast<Exit>(b.at(1).get<int>()), b.at(2), b.at(3), b.at(4)), b.at(5)};
    return out;
  }
};

Announced announced(const fs::path& path, const checkpoint::Manifest& manifest, std::string manifest_text) {
  Announced out;
  out.path = path.string();
  out.manifest = std::move(manifest_text);
  out.point = id_of(manifest.point);
  out.shards = static_cast<int>(manifest.shards.size());
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    std::error_code missing;
    const auto bytes = fs::file_size(path / manifest.shards[i].file, missing);
    if (missing || static_cast<std::int64_t>(bytes) != manifest.shards[i].bytes)
      out.bad_shards.push_back(static_cast<int>(i));
  }
  return out;
}

/// What is known of checkpoint `step`, which is in its folder or (`listed` false) should be. Throws Damaged;
/// what is unknown is `blocked`.
Announced look_at(const fs::path& path, std::int64_t step, bool listed, const std::set<PointId>& offered) {
  Announced out;
  try {
    if (!listed)
      throw checkpoint::Unreadable("checkpoint " + path.string(),
                                   "it is missing, and by the record of the run it is durable");
    std::string text = checkpoint::read_manifest_text(path);
    const checkpoint::Manifest manifest = checkpoint::parse_manifest_of(path, text);
    if (manifest.point.step != step)
      throw checkpoint::Damaged(fmt::format("{} holds step {}", path.string(), manifest.point.step));
    out = announced(path, manifest, std::move(text));
    if (out.bad_shards.empty()) return out;
    try {
      checkpoint::check_sizes(path, manifest);
      out.bad_shards.clear();  // all there again
    } catch (const checkpoint::Damaged&) {
      if (!offered.contains(out.point)) throw;  // else the rest may come from elsewhere
    }
  } catch (const checkpoint::Damaged&) {
    throw;
  } catch (const Error& error) {
    out.blocked = Blocked{step, error};
    if (!offered.contains(out.point)) out.path.clear();
  }
  return out;
}

/// On the one rank that looks: the newest below `before_step` that can be of use. `end`: from which step on
/// there are none. `record`: steps that have to be there.
Announced look_for_older(const fs::path& checkpoints, std::int64_t end, std::int64_t before_step,
                         const std::set<PointId>& offered,
                         const std::function<std::vector<std::int64_t>()>& record) {
  std::set<std::int64_t, std::greater<>> steps;
  std::vector<std::string> notes;
  const auto with_notes = [&](Announced out) {
    out.notes = notes;
    out.newest_known = steps.empty() ? -1 : *steps.begin();
    return out;
  };
  const auto add = [&](const std::vector<std::int64_t>& some) {
    std::copy_if(some.begin(), some.end(), std::inserter(steps, steps.end()),
                 [&](std::int64_t step) { return step < end; });
  };
  std::vector<std::int64_t> listed;
  try {
    add(record());
    listed = checkpoint::committed_steps(checkpoints);
    add(listed);
    if (std::error_code error; listed.empty() && !fs::is_directory(checkpoints, error))
      throw checkpoint::Unreadable("the folder " + checkpoints.string(),
                                   error ? error.message() : "it is missing");
  } catch (const Error& error) {
    Announced out;
    out.blocked = Blocked{steps.empty() ? 0 : *steps.begin(), error};
    return with_notes(std::move(out));
  }
  for (const std::int64_t step : steps) {
    if (step >= before_step) continue;
    const bool is_listed = std::find(listed.begin(), listed.end(), step) != listed.end();
    try {
      return with_notes(look_at(checkpoint::committed_path(checkpoints, step), step, is_listed, offered));
    } catch (const checkpoint::Damaged& error) {
      notes.emplace_back(error.what());
    }
  }
  return with_notes({});
}

/// The folder in which it would lie is there and can be read: not a file system that is away.
bool is_surely_absent(const fs::path& path) {
  if (files::look_at(path).presence != files::Presence::absent) return false;
  fs::path name = fs::absolute(path).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();  // it ends in '/'
  std::error_code unreadable;
  const fs::directory_iterator folder(name.parent_path(), unreadable);
  return !unreadable;
}

}  // namespace

SharedLevel::SharedLevel(const RunDir& dir, const checkpoint::Facts& facts, bool other_numerics,
                         std::int64_t before_step, const DurableSteps& durable,
                         const checkpoint::Patience& patience, comm::Communicator& world)
    : dir_(dir),
      facts_(facts),
      other_numerics_(other_numerics),
      end_(before_step),
      durable_(durable),
      patience_(patience),
      world_(world),
      before_step_(before_step) {}

bool SharedLevel::add_older(const std::set<PointId>& offered,
                            const std::function<Parts(int writer)>& parts_of_shard) {
  std::string text, manifest;
  together(world_, world_.rank() == 0, [&] {
    Announced mine = look_for_older(dir_.checkpoints(), end_, before_step_, offered, [&] {
      return durable_ ? *durable_ : checkpoint::recorded_steps(dir_.durable());
    });
    if (!mine.blocked) retries_.reset();
    if (mine.blocked && !retries_) retries_.emplace(patience_);
    if (mine.blocked) mine.blocked->over = retries_->over();
    text = mine.text();
    manifest = std::move(mine.manifest);
  });
  const Announced found = Announced::from(comm::broadcast_text(world_, text, 0));
  for (const std::string& note : found.notes) {
    if (std::find(notes_.begin(), notes_.end(), note) != notes_.end()) continue;  // looked at again
    notes_.push_back(note);
    if (world_.rank() == 0) log::warn("a damaged checkpoint is not used: {}", note);
  }
  newest_known_ = std::max(newest_known_, found.newest_known);
  blocked_ = found.blocked;
  if (found.path.empty()) return false;
  manifest = comm::broadcast_text(world_, manifest, 0);
  // A snapshot of the same point has the layout of this run; the checkpoint need not. Without the same number
  // of writers nothing follows from a shard.
  const bool same_writers = found.shards == world_.size();
  SharedOffer offer{found.point, {}};
  if (!same_writers && !found.bad_shards.empty()) {
    if (blocked_) return false;
    before_step_ = found.point.step;
    return add_older(offered, parts_of_shard);
  }
  for (const int shard : found.bad_shards) {
    const Parts parts = parts_of_shard(shard);
    offer.bad.insert(parts.begin(), parts.end());
    if (!blocked_)
      notes_.push_back(fmt::format("{} of {} is cut", checkpoint::shard_file_name(shard), found.path));
  }
  before_step_ = found.point.step;
  append(found.path, std::move(offer), std::move(manifest));
  return true;
}

void SharedLevel::wait() {
  const Blocked blocked = std::exchange(blocked_, std::nullopt).value();
  if (blocked.why.exit() != Exit::transient) throw blocked.why;
  if (blocked.over) throw checkpoint::given_up(blocked.why, patience_);
  if (world_.rank() == 0) retries_->pause(blocked.why);
  // What is on the list of it may be more the next time.
  if (!offers_.empty() && offers_.back().point.step == blocked.step)
    offers_.pop_back(), paths_.pop_back(), manifests_.pop_back(), manifest_texts_.pop_back();
  before_step_ = offers_.empty() ? end_ : offers_.back().point.step;
}

void SharedLevel::add(const fs::path& path, bool must) {
  const auto exit_of = [](Exit exit) { return static_cast<std::uint64_t>(exit) + 1; };
  std::string text, manifest;
  std::optional<Failure> failure;
  try {
    if (world_.rank() == 0) {
      if (must && is_surely_absent(path))
        throw Error(Exit::usage, "there is no checkpoint " + path.string(), "run.resume names it",
                    "Use auto, none or the path of a checkpoint?");
      lease_.emplace(path);
      if (!lease_->why_not().empty()) log::warn("{}", lease_->why_not());
      manifest = checkpoint::patiently(patience_, [&] { return checkpoint::read_manifest_text(path); });
      text = announced(path, checkpoint::parse_manifest_of(path, manifest), {}).text();
    }
  } catch (const Error& error) {
    failure = Failure{exit_of(error.exit()), 0, error.what()};
  }
  if (const auto worst = worst_failure(world_, failure)) {
    if (worst->severity == exit_of(Exit::runtime))
      throw preflight::cannot_resume(Exit::runtime, path, worst->text);
    throw Error(static_cast<Exit>(worst->severity - 1), worst->text);
  }
  const Announced found = Announced::from(comm::broadcast_text(world_, text, 0));
  append(path, {found.point, {}}, comm::broadcast_text(world_, manifest, 0));
}

void SharedLevel::append(const fs::path& path, SharedOffer offer, std::string manifest) {
  paths_.push_back(path);
  manifest_texts_.push_back(std::move(manifest));
  offers_.push_back(std::move(offer));
  manifests_.emplace_back();
}

const checkpoint::Manifest& SharedLevel::manifest(int i) {
  auto& known = manifests_[i];
  if (!known) {
    checkpoint::Manifest read = checkpoint::parse_manifest_of(path(i), manifest_texts_[i]);
    check_facts(read.facts, facts_, path(i), other_numerics_, world_.rank() == 0);
    known = std::move(read);
    manifest_texts_[i] = {};
  }
  return *known;
}

checkpoint::Salvaged SharedLevel::load(int i, const checkpoint::State& into) {
  const checkpoint::Manifest& what = manifest(i);
  return checkpoint::patiently(patience_, [&] { return checkpoint::salvage(path(i), what, into); });
}

}  // namespace holdfast::train
