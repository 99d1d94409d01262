#pragma once
// The shared level as a restore sees it: which checkpoints there are, one after the other, and pieces of
// them. Which there should be, the record of the run says. One that is proven damaged is passed over; one
// that is missing or cannot be read now ends the list, because it may be sound.
//
// Rank 0 alone reads manifests, and sends their texts to all; a thousand ranks would read the same file.
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/index/lease.hpp"
#include "checkpoint/index/patience.hpp"
#include "checkpoint/shards/load.hpp"
#include "src/base/error.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/local/offers.hpp"

namespace holdfast::train {

/// Steps that have to be there: what the leader's record says; nothing: what durable.json says.
using DurableSteps = std::optional<std::vector<std::int64_t>>;

/// Rank 0 says for all where the list of checkpoints ends before its end.
struct Blocked {
  std::int64_t step = 0;  ///< of which nothing is known; the newest on record when the folder cannot be read
  Error why;              ///< its code says whether waiting may help
  bool over = false;      ///< patience is
};

class SharedLevel {
 public:
  /// `other_numerics`: checkpoints that were made under another numerics identity are taken too.
  /// `before_step`: those of this step and later ones are not looked at. References outlive the object.
  SharedLevel(const RunDir& dir, const checkpoint::Facts& facts, bool other_numerics,
              std::int64_t before_step, const DurableSteps& durable, const checkpoint::Patience& patience,
              comm::Communicator& world);

  /// Collective: puts the newest checkpoint older than those of the list on the list; false: there is none,
  /// or nothing is known of it, see blocked(). One that is proven damaged is passed over, with a sentence in
  /// notes(), unless `offered` has its point: then the rest may come from elsewhere, and it is on the list
  /// with what is bad of it. `parts_of_shard`: kinds and pieces that have a part in the shard of a writer of
  /// this run.
  using Parts = std::set<std::pair<int, int>>;
  bool add_older(const std::set<PointId>& offered, const std::function<Parts(int writer)>& parts_of_shard);
  /// Collective: puts this one on the list, under a lease: it may be of another run that lives. Throws Error
  /// when it is damaged (runtime), cannot be read (transient) or is of a newer format (no_requeue); `must` be
  /// there: (usage) at once where its folder shows that it is not.
  void add(const std::filesystem::path& path, bool must);

  /// The same on every rank: no older one is known, because nothing is known of this one.
  const std::optional<Blocked>& blocked() const { return blocked_; }
  /// Waits for a moment, after which add_older() looks again. Throws Error when there is nothing to wait for
  /// any more. The same on every rank.
  void wait();
  /// The newest step that is or should be there; -1: none.
  std::int64_t newest_known() const { return newest_known_; }

  std::vector<SharedOffer>& offers() { return offers_; }
  const std::filesystem::path& path(int i) const { return paths_[i]; }
  const std::vector<std::string>& notes() const { return notes_; }

  /// Of text that rank 0 has read, parsed when it is first asked for. Throws Error when it is of another
  /// model or, unless it may be, of another arithmetic.
  const checkpoint::Manifest& manifest(int i);
  /// Fills what is sound of `into`. Throws as manifest() does.
  checkpoint::Salvaged load(int i, const checkpoint::State& into);

 private:
  void append(const std::filesystem::path& path, SharedOffer offer, std::string manifest);

  const RunDir& dir_;
  const checkpoint::Facts& facts_;
  const bool other_numerics_;
  const std::int64_t end_;
  const DurableSteps& durable_;
  const checkpoint::Patience& patience_;
  comm::Communicator& world_;
  std::vector<SharedOffer> offers_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::string> manifest_texts_;  ///< of each offer, until it is parsed
  std::vector<std::optional<checkpoint::Manifest>> manifests_;
  std::optional<checkpoint::Lease> lease_;  ///< rank 0's, on a checkpoint of another run
  std::vector<std::string> notes_;
  std::int64_t before_step_, newest_known_ = -1;
  std::optional<Blocked> blocked_;
  std::optional<checkpoint::Retries> retries_;  ///< since the list is blocked
};

}  // namespace holdfast::train
