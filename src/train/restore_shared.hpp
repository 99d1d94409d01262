#pragma once
// The shared level as a restore sees it: which checkpoints there are, one after the other, and pieces of
// them.
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/load.hpp"
#include "src/base/error.hpp"
#include "src/base/run_dir.hpp"
#include "src/comm/communicator.hpp"
#include "src/train/ladder.hpp"

namespace holdfast::train {

/// The checkpoint that run.resume names is of no use.
Error cannot_resume(const std::filesystem::path& path, const std::string& why);

class SharedLevel {
 public:
  /// `other_numerics`: checkpoints that were made under another numerics identity are taken too.
  SharedLevel(const RunDir& dir, const checkpoint::Facts& facts, bool other_numerics,
              comm::Communicator& world);

  /// Collective: puts the newest checkpoint older than those of the list on the list; false: there is none.
  /// One with missing or cut files is passed over, with a sentence in notes(), unless `offered` has its
  /// point: then the rest may come from elsewhere, and it is on the list with what is bad of it.
  /// `parts_of_shard`: kinds and pieces that have a part in the shard of a writer of this run.
  using Parts = std::set<std::pair<int, int>>;
  bool add_older(const std::set<PointId>& offered, const std::function<Parts(int writer)>& parts_of_shard);
  /// Collective: puts this one on the list. Throws Error when it is damaged (runtime) or none (usage).
  void add(const std::filesystem::path& path);

  std::vector<SharedOffer>& offers() { return offers_; }
  const std::filesystem::path& path(int i) const { return paths_[static_cast<std::size_t>(i)]; }
  const std::vector<std::string>& notes() const { return notes_; }

  /// On this rank, read when it is first asked for. Throws Damaged; Error when the checkpoint is of another
  /// model or, unless it may be, of another arithmetic.
  const checkpoint::Manifest& manifest(int i);
  /// Fills what is sound of `into`. Throws as manifest() does.
  checkpoint::Salvaged load(int i, const checkpoint::State& into);

 private:
  void append(const std::filesystem::path& path, SharedOffer offer);

  const RunDir& dir_;
  const checkpoint::Facts& facts_;
  const bool other_numerics_;
  comm::Communicator& world_;
  std::vector<SharedOffer> offers_;
  std::vector<std::filesystem::path> paths_;
  std::vector<std::optional<checkpoint::Manifest>> manifests_;
  std::vector<std::string> notes_;
  std::int64_t before_step_ = INT64_MAX;
};

}  // namespace holdfast::train
