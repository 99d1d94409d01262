// round() has two halves. In the first each rank copies what lies on its node and reads from the checkpoint
// what the choice gives to it. The ranks agree on what was bad; only if nothing was, they send each other the
// rest (exchange), and agree again. A piece stays while the choices name the same source for it, so a round
// after a damaged piece repeats only what has changed; another point begins anew.
//
// Messages need no requests: transfers_to() lists from the choices alone what a rank receives from whom, and
// sender and receiver compute the same list with the same tags. The digests of a snapshot come before its
// pieces, and their hash must be the seal that was offered. Pieces of a checkpoint are checked where they are
// read (salvage()), and the whole in restore.cpp.
//
// An exchange that fails on any rank was the last one of this restore: the next choice does without the
// network.
#include "src/train/restore/restore_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/state/piece_index.hpp"

namespace holdfast::train {
namespace {

std::span<const std::byte> bytes_of_piece(const checkpoint::State& state, int piece) {
  const checkpoint::PieceView& p = state.pieces[piece];
  return {static_cast<const std::byte*>(p.data), as_size(checkpoint::bytes_of(p.span(), state.tensors))};
}

}  // namespace

Fill::Fill(FillParts parts, comm::Communicator& world)
    : parts_(std::move(parts)),
      world_(world),
      rank_(world.rank()),
      network_(static_cast<bool>(parts_.open_exchange)),
      owners_(parts_.views.held.pieces.size()),
      buffer_(parts_.views, parts_.local),
      pieces_(parts_.views.held.pieces.size()) {
  const PieceIndex held(parts_.views.held);
  for (int rank = 0; rank < world.size(); ++rank)
    if (parts_.ranks.kind_of[rank] == kind())
      for (const checkpoint::PieceSpan& span :
           checkpoint::spans_of(parts_.views.owned.tensors, parts_.views.writers, rank))
        owners_[held.piece(span)].push_back({rank, span});
}

BadPieces Fill::round(const RestoreChoice& choice, std::span<const Offer> offers) {
  begin(choice, offers);
  BadPieces mine;
  take_from_node(choice, offers, mine);
  take_from_shared(choice, mine);
  BadPieces all = agree_on(mine, world_);
  if (!all.none()) return all;
  mine = {};
  exchange(choice, offers, mine);
  return agree_on(mine, world_);
}

void Fill::stop_sharing() {
  sharing_ = false;
  start_over();
}

void Fill::begin(const RestoreChoice& choice, std::span<const Offer> offers) {
  sealed_.resize(offers.size());
  if (point_ != choice.point) {
    point_ = choice.point;
    std::optional<int> has_it;
    for (int i = 0; i < std::ssize(pieces_) && !has_it; ++i)
      if (const PieceSource& source = choice.source(rank_, i); source.level == Level::local)
        has_it = offers[source.offer].buffer;
    buffer_.begin(choice.point, has_it);
    pieces_.assign(pieces_.size(), {});
    delivered_.reset();
  }
  const auto same = std::count(parts_.ranks.kind_of.begin(), parts_.ranks.kind_of.end(), kind());
  for (int i = 0; i < std::ssize(pieces_); ++i) {
    bool all = network_ && sharing_ && same > 1;
    for (int rank = 0; rank < world_.size() && all; ++rank)
      if (parts_.ranks.kind_of[rank] == kind()) all = choice.source(rank, i).level == Level::shared;
    Piece& piece = pieces_[i];
    if (piece.shared_read != all && piece.loaded) piece = {};
    piece.shared_read = all;
  }
}

void Fill::check(int piece, const PieceSource& source, std::uint64_t expected, BadPieces& bad) {
  Piece& p = pieces_[piece];
  if (buffer_.digest(piece) == expected) {
    p.done = source;
    p.digest = expected;
    return;
  }
  bad.pieces.emplace_back(source.offer, piece);
  bad.reasons.push_back(fmt::format("rank {}'s piece {} of step {} is damaged at the level {}", rank_, piece,
                                    point_->step, name_of(source.level)));
}

const checkpoint::Sealed* Fill::sealed(int offer, std::span<const Offer> offers) {
  auto& known = sealed_[offer];
  const Offer& o = offers[offer];
  if (!known) known = sealed_as(parts_.files->find(o.of, o.copy), o);
  return known ? &*known : nullptr;
}

void Fill::take_from_node(const RestoreChoice& choice, std::span<const Offer> offers, BadPieces& bad) {
  std::map<int, checkpoint::State> views;  // by offer
  for (int i = 0; i < std::ssize(pieces_); ++i) {
    const PieceSource& source = choice.source(rank_, i);
    if (source.level == Level::shared || pieces_[i].done == source) continue;
    const Offer& offer = offers[source.offer];
    if (!same_node(offer.reader, rank_)) continue;
    const checkpoint::Sealed* what = sealed(source.offer, offers);
    if (what == nullptr) {
      bad.pieces.emplace_back(source.offer, i);
      continue;
    }
    if (source.level != Level::local || buffer_.in_place() != offer.buffer) {
      if (!views.contains(source.offer))
        views.emplace(source.offer, parts_.files->view(offer.of, offer.copy, offer.buffer));
      buffer_.replace(i);
      std::ranges::copy(bytes_of_piece(views.at(source.offer), i), buffer_.bytes(i).begin());
    }
    check(i, source, what->digests[i], bad);
  }
}

void Fill::take_from_shared(const RestoreChoice& choice, BadPieces& bad) {
  checkpoint::State into{buffer_.held().tensors, {}};
  std::vector<int> piece_of;  // of each piece of `into`
  int checkpoint = -1;
  for (int i = 0; i < std::ssize(pieces_); ++i) {
    const PieceSource& source = choice.source(rank_, i);
    if (source.level != Level::shared || pieces_[i].loaded == source) continue;
    checkpoint = source.offer;
    buffer_.replace(i);
    std::vector<checkpoint::PieceSpan> spans;
    if (pieces_[i].shared_read) {
      for (const Part& part : owners_[i])
        if (part.rank == rank_) spans.push_back(part.span);
    } else {
      spans.push_back(buffer_.piece(i).span());
    }
    for (const checkpoint::PieceSpan& span : spans) {
      into.pieces.push_back({span.tensor, span.first, span.count, part_bytes(i, span).data()});
      piece_of.push_back(i);
    }
    pieces_[i].loaded = source;
  }
  if (checkpoint < 0) return;
  std::set<int> damaged;
  try {
    const checkpoint::Salvaged salvaged = parts_.shared.load(checkpoint, into);
    read_ += salvaged.bytes_read;
    for (std::size_t k = 0; k < piece_of.size(); ++k)
      if (!salvaged.whole[k]) damaged.insert(piece_of[k]);
    const std::string where = parts_.shared.path(checkpoint).filename().string();
    for (const std::string& problem : salvaged.problems) bad.reasons.push_back(where + ", " + problem);
  } catch (const checkpoint::Damaged& error) {
    damaged.insert(piece_of.begin(), piece_of.end());
    bad.reasons.emplace_back(error.what());
  } catch (const Error& error) {
    bad.refused = error.what();
    bad.refused_code = static_cast<int>(error.exit());
  }
  for (const int i : damaged) {
    bad.shared.push_back({checkpoint, kind(), i});
    pieces_[i].loaded.reset();
  }
  for (int i = 0; i < std::ssize(pieces_); ++i)
    if (pieces_[i].loaded && !pieces_[i].shared_read) pieces_[i].done = pieces_[i].loaded;
}

std::vector<Fill::Transfer> Fill::transfers_to(int rank, const RestoreChoice& choice,
                                               std::span<const Offer> offers) const {
  std::vector<Transfer> out;
  if (choice.all_own(rank)) return out;
  std::map<int, std::uint64_t> next_tag;  // by sender
  std::set<int> announced;                // offers
  const auto add = [&](Transfer transfer) {
    transfer.tag = next_tag[transfer.from]++;
    out.push_back(transfer);
  };
  const int kind_of_rank = parts_.ranks.kind_of[rank];
  const auto count = static_cast<int>(parts_.ranks.piece_bytes[kind_of_rank].size());
  for (int i = 0; i < count; ++i) {
    const PieceSource& source = choice.source(rank, i);
    const bool as_before = delivered_ && delivered_->source(rank, i) == source;
    if (source.level == Level::shared) {
      if (kind_of_rank != kind() || !pieces_[i].shared_read) continue;
      if (as_before && pieces_[i].delivered) continue;
      for (const Part& part : owners_[i])
        if (part.rank != rank) add({part.rank, 0, i, -1, part.span});
      continue;
    }
    const int reader = offers[source.offer].reader;
    if (as_before || same_node(reader, rank)) continue;
    if (announced.insert(source.offer).second) add({reader, 0, -1, source.offer});
    add({reader, 0, i, source.offer});
  }
  return out;
}

std::vector<comm::PieceOut> Fill::outgoing(const RestoreChoice& choice, std::span<const Offer> offers) {
  std::vector<comm::PieceOut> out;
  std::map<int, checkpoint::State> views;  // by offer
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (rank == rank_) continue;
    for (const Transfer& t : transfers_to(rank, choice, offers)) {
      if (t.from != rank_) continue;
      if (t.offer < 0) {
        out.push_back({rank, t.tag, part_bytes(t.piece, t.part)});
        continue;
      }
      const Offer& offer = offers[t.offer];
      if (t.piece < 0) {
        auto& known = sealed_[t.offer];
        // What is gone since it was offered is sent as what it cannot be: the receiver finds it bad.
        if (sealed(t.offer, offers) == nullptr)
          known = checkpoint::Sealed{
              {}, std::vector<std::uint64_t>(parts_.ranks.piece_bytes[parts_.ranks.kind(offer.of)].size())};
        out.push_back({rank, t.tag, std::as_bytes(std::span(known->digests))});
        continue;
      }
      if (!views.contains(t.offer))
        views.emplace(t.offer, parts_.files->view(offer.of, offer.copy, offer.buffer));
      out.push_back({rank, t.tag, bytes_of_piece(views.at(t.offer), t.piece)});
    }
  }
  return out;
}

bool Fill::open(BadPieces& bad) {
  if (exchange_) return true;
  std::optional<Failure> failure;
  constexpr std::uint64_t failed = 1, refused = 2;
  try {
    exchange_ = parts_.open_exchange();
    network_text_ = exchange_->describe();
  } catch (const Error& error) {
    failure = Failure{error.exit() == Exit::usage ? refused : failed, rank_, error.what()};
  }
  const auto worst = worst_failure(world_, failure);
  if (!worst) return true;
  exchange_.reset();
  network_ = false;
  if (worst->severity == refused) {
    bad.refused = worst->text;
    bad.refused_code = static_cast<int>(Exit::usage);
  } else
    bad.network = worst->text;
  return false;
}

void Fill::exchange(const RestoreChoice& choice, std::span<const Offer> offers, BadPieces& bad) {
  const std::vector<Transfer> arriving = transfers_to(rank_, choice, offers);
  const std::vector<comm::PieceOut> out = outgoing(choice, offers);
  std::uint64_t needed[] = {arriving.empty() && out.empty() ? 0U : 1U};
  world_.all_reduce(needed, comm::Scalar::max);
  if (needed[0] == 0 || !open(bad)) return;

  std::map<int, std::vector<std::uint64_t>> digests;  // by offer
  std::vector<comm::PieceIn> in;
  for (const Transfer& t : arriving) {
    if (t.offer < 0) {
      in.push_back({t.from, t.tag, part_bytes(t.piece, t.part)});
    } else if (t.piece < 0) {
      auto& room = digests[t.offer];
      room.resize(pieces_.size());
      in.push_back({t.from, t.tag, std::as_writable_bytes(std::span(room))});
    } else {
      buffer_.replace(t.piece);
      in.push_back({t.from, t.tag, buffer_.bytes(t.piece)});
    }
  }
  std::optional<Failure> failure;
  try {
    const comm::ExchangeRate rate = exchange_->run(out, in, Deadline::in(parts_.limit));
    received_ += rate.received;
    seconds_exchanging_ += rate.seconds;
  } catch (const Error& error) {
    failure = Failure{1, rank_, error.what()};
  }
  if (const auto worst = worst_failure(world_, failure)) {
    exchange_.reset();
    network_ = false;
    bad.network = worst->text;
    return;
  }
  delivered_ = choice;
  for (Piece& piece : pieces_) piece.delivered = piece.shared_read;
  for (const Transfer& t : arriving) {
    if (t.piece < 0) continue;
    const PieceSource& source = choice.source(rank_, t.piece);
    if (t.offer < 0) {
      pieces_[t.piece].done = source;
    } else if (seal_of(digests[t.offer]) != offers[t.offer].seal) {
      bad.pieces.emplace_back(t.offer, t.piece);
    } else {
      check(t.piece, source, digests[t.offer][t.piece], bad);
    }
  }
}

std::span<std::byte> Fill::part_bytes(int piece, const checkpoint::PieceSpan& part) const {
  const checkpoint::PieceView& whole = buffer_.piece(piece);
  const std::int64_t element = bytes_of(buffer_.held().tensors[whole.tensor].type);
  return buffer_.bytes(piece).subspan((part.first - whole.first) * element, as_size(part.count * element));
}

bool Fill::same_node(int a, int b) const { return parts_.ranks.node_of[a] == parts_.ranks.node_of[b]; }

std::vector<std::uint64_t> Fill::digests() const {
  std::vector<std::uint64_t> out;
  for (int i = 0; i < std::ssize(pieces_); ++i)
    out.push_back(pieces_[i].digest ? *pieces_[i].digest : buffer_.digest(i));
  return out;
}

FillCounts Fill::counts() const {
  FillCounts out;
  for (int i = 0; i < std::ssize(pieces_); ++i) {
    if (!pieces_[i].done) continue;
    const auto level = as_size(pieces_[i].done->level);
    ++out.pieces[level];
    out.bytes[level] += std::ssize(buffer_.bytes(i));
  }
  out.read = read_;
  out.received = received_;
  out.seconds_exchanging = seconds_exchanging_;
  return out;
}

}  // namespace holdfast::train
