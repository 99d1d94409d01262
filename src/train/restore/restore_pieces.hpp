#pragma once
// Filling a rank's state as was chosen (snapshot::choose): a round at a time, until nothing that was used
// turned out to be bad. Every piece of a snapshot is checked against the digest that it was sealed with,
// where it arrives.
//
// Ranks that hold the same share the reading of a checkpoint: each reads what it owns and gets the rest from
// the others.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/peer_exchange.hpp"
#include "src/train/local/offers.hpp"
#include "src/train/restore/restore_buffer.hpp"
#include "src/train/restore/restore_shared.hpp"

namespace holdfast::train {

/// Of this rank.
struct FillCounts {
  std::int64_t pieces[levels] = {}, bytes[levels] = {};  ///< of the state that it has now, by level
  std::int64_t read = 0;                                 ///< bytes from files of the shared level
  std::int64_t received = 0;                             ///< bytes from other ranks
  double seconds_exchanging = 0;
};

struct FillParts {
  const RestoreWorld& ranks;
  const StateViews& views;
  SharedLevel& shared;
  NodeFiles* files = nullptr;  ///< null: no offers
  Snapshots* local = nullptr;  ///< null: the state is filled where the views show it
  /// Collective; empty: pieces cannot be sent.
  std::function<std::unique_ptr<comm::PeerExchange>()> open_exchange;
  std::chrono::milliseconds limit{};  ///< of one exchange of pieces
};

class Fill {
 public:
  Fill(FillParts parts, comm::Communicator& world);

  /// Collective: what is bad of what was used, anywhere. Nothing bad: the state of `choice.point` is whole.
  BadPieces round(const RestoreChoice& choice, std::span<const Offer> offers);
  /// Ranks can send each other pieces.
  bool network() const { return network_; }
  /// From now on each rank reads all that it needs.
  void stop_sharing();
  /// Nothing that was filled so far counts.
  void start_over() { point_.reset(); }

  const checkpoint::State& held() const { return buffer_.held(); }
  /// Of a whole state, one per piece.
  std::vector<std::uint64_t> digests() const;
  void finish(const checkpoint::RunPoint& point) { buffer_.finish(point, digests()); }
  FillCounts counts() const;
  /// Over what the pieces went, "": they did not have to.
  const std::string& network_text() const { return network_text_; }

 private:
  /// A message; both sides list those of a receiver in the same order, and so have the same tags.
  struct Transfer {
    int from = 0;
    std::uint64_t tag = 0;
    int piece = -1;  ///< -1: the digests of the offer
    int offer = -1;  ///< -1: a part of a piece that was read from the shared level
    checkpoint::PieceSpan part = {};
  };
  void begin(const RestoreChoice& choice, std::span<const Offer> offers);
  void take_from_node(const RestoreChoice& choice, std::span<const Offer> offers, BadPieces& bad);
  void take_from_shared(const RestoreChoice& choice, BadPieces& bad);
  /// Collective.
  void exchange(const RestoreChoice& choice, std::span<const Offer> offers, BadPieces& bad);
  bool open(BadPieces& bad);
  std::vector<Transfer> transfers_to(int rank, const RestoreChoice& choice,
                                     std::span<const Offer> offers) const;
  std::vector<comm::PieceOut> outgoing(const RestoreChoice& choice, std::span<const Offer> offers);
  void check(int piece, const PieceSource& source, std::uint64_t expected, BadPieces& bad);
  const checkpoint::Sealed* sealed(int offer, std::span<const Offer> offers);
  std::span<std::byte> part_bytes(int piece, const checkpoint::PieceSpan& part) const;
  bool same_node(int a, int b) const;
  int kind() const { return parts_.ranks.kind_of[rank_]; }

  FillParts parts_;
  comm::Communicator& world_;
  const int rank_;
  bool network_, sharing_ = true;
  std::unique_ptr<comm::PeerExchange> exchange_;
  std::string network_text_;
  /// For each piece that this rank holds: who owns which part of it.
  struct Part {
    int rank = 0;
    checkpoint::PieceSpan span;
  };
  std::vector<std::vector<Part>> owners_;

  std::optional<PointId> point_;  ///< that is being put together
  RestoreBuffer buffer_;
  /// A piece that this rank needs: what is there of it.
  struct Piece {
    std::optional<PieceSource> loaded;  ///< from the shared level: this rank's part of it, or all
    std::optional<PieceSource> done;    ///< it is whole, and checked as far as that can be done here
    std::optional<std::uint64_t> digest;
    bool shared_read = false;  ///< by the choice: the ranks of the kind read a part each
    bool delivered = false;    ///< and have sent each other these parts
  };
  std::vector<Piece> pieces_;
  std::optional<RestoreChoice> delivered_;                 ///< by which pieces were last exchanged
  std::vector<std::optional<checkpoint::Sealed>> sealed_;  ///< by offer, when it was looked up
  std::int64_t read_ = 0, received_ = 0;
  double seconds_exchanging_ = 0;
};

}  // namespace holdfast::train
