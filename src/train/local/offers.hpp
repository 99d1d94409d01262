#pragma once
// What the local level of each node has to offer a restore: the files that lie in its folder, whoever wrote
// them, and what all ranks learn of them.
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/index/state_folder.hpp"
#include "src/comm/communicator.hpp"
#include "src/snapshot/choice.hpp"
#include "src/train/local/local_identity.hpp"

namespace holdfast::train {

using snapshot::Level, snapshot::levels, snapshot::name_of, snapshot::Offer, snapshot::PieceSource,
    snapshot::PointId, snapshot::RestoreChoice, snapshot::RestoreRules, snapshot::RestoreWorld,
    snapshot::SharedOffer;

PointId id_of(const checkpoint::RunPoint& point);

/// The snapshots on a node, mapped when they are first needed. Those of another run, layout or size are as
/// good as none.
class NodeFiles {
 public:
  /// `own`: those of this rank, where it has any. References outlive the object.
  NodeFiles(std::filesystem::path folder, const LocalRun& run, int rank, const checkpoint::StateFolder* own);

  /// The same for ranks that see the same folder, and for no others.
  std::string node() const;
  /// Those that there are by name, in a fixed order: whose state, and whether it is a copy.
  std::vector<std::pair<int, bool>> names() const;
  /// Null: there is none, or it cannot be read.
  const checkpoint::StateFolder* find(int of, bool copy);
  /// Pieces of rank `of` in a buffer of its snapshots, which were found. Only to be read.
  checkpoint::State view(int of, bool copy, int buffer);
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  const LocalRun& run_;
  const int rank_;
  const checkpoint::StateFolder* own_;
  std::map<std::pair<int, bool>, std::optional<checkpoint::StateFolder>> found_;
};

/// Offer::seal of these digests.
std::uint64_t seal_of(std::span<const std::uint64_t> digests);
/// What the buffer of an offer holds, when it is still what was offered.
std::optional<checkpoint::Sealed> sealed_as(const checkpoint::StateFolder* file, const Offer& offer);

struct LocalOffers {
  std::vector<int> node_of;  ///< rank -> node, numbered by the first rank of each
  std::vector<Offer> offers;
};
/// Collective. Every file is read by one rank of its node: its owner, or where that is elsewhere one of those
/// that are there. Only records are read, no data.
LocalOffers gather_offers(NodeFiles& files, comm::Communicator& world);

/// What went wrong in a round of a restore; the same on every rank after agree_on().
struct BadPieces {
  std::vector<std::pair<int, int>> pieces;  ///< offer and piece
  std::vector<std::array<int, 3>> shared;   ///< shared checkpoint, kind and piece
  std::vector<std::string> reasons;         ///< for people
  std::string refused;                      ///< the checkpoint must not, or cannot be loaded
  int refused_code = 0;                     ///< and the exit code that this means
  std::string network;                      ///< pieces cannot be sent any more
  bool none() const { return pieces.empty() && shared.empty() && refused.empty() && network.empty(); }
};
/// Collective: those of all ranks, in their order.
BadPieces agree_on(const BadPieces& mine, comm::Communicator& world);

}  // namespace holdfast::train
