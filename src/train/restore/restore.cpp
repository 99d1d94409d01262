// Restore::run() puts away what is not trusted, gathers the offers of the local level, and then repeats:
// next_choice() chooses the newest point that may be whole, and Fill::round() fills the ranks' state from its
// places. What turned out bad is ruled out, and the next choice does without it. When nothing is bad, the
// replicas must hold the same, what the ranks own must have the digest of what they hold, and the manifest of
// a checkpoint that was used must name that state; else the point is refused. When replicas differ for the
// first time, each rank first reads all by itself.
//
// Checkpoints are looked at one after the other, as far back as a choice needs (complete_list). Where one
// cannot be read now, nothing older is chosen: the ranks wait, and throw when patience is over or waiting
// cannot help. Training starts at step 0 only where no checkpoint that may be taken is known; if all of those
// are damaged, that is an Error. All ranks decide from the same data, so each finds itself at the same
// collective.
#include "src/train/restore/restore.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"
#include "src/preflight/run.hpp"
#include "src/shard/layout.hpp"
#include "src/train/common/agree.hpp"
#include "src/train/local/offers.hpp"
#include "src/train/restore/leftovers.hpp"
#include "src/train/restore/restore_pieces.hpp"
#include "src/train/restore/restore_shared.hpp"
#include "src/train/state/piece_index.hpp"
#include "src/train/state/state_digest.hpp"

namespace holdfast::train {
namespace {

using checkpoint::PieceSpan;

void refuse_to_mix(const RunDir& dir, const DurableSteps& durable, const checkpoint::Patience& patience,
                   comm::Communicator& world) {
  together(world, world.rank() == 0, [&] {
    auto steps = checkpoint::patiently(
        patience, [&] { return durable ? *durable : checkpoint::recorded_steps(dir.durable()); });
    const auto there =
        checkpoint::patiently(patience, [&] { return checkpoint::committed_steps(dir.checkpoints()); });
    steps.insert(steps.end(), there.begin(), there.end());
    if (!steps.empty()) throw preflight::holds_a_run(dir.path, *std::max_element(steps.begin(), steps.end()));
  });
}

/// Whoever starts from step 0 instead would lose the run.
Error all_damaged(const RunDir& dir, std::int64_t newest, const std::vector<std::string>& why) {
  return {
      Exit::no_requeue,
      fmt::format("no checkpoint in {} can be used, the newest is of step {}", dir.checkpoints().string(),
                  newest),
      fmt::format("{}", fmt::join(why, "; ")),
      "Go on from another checkpoint with run.resume = its path, in a new run.dir; or begin again in a new "
      "one?"};
}

/// The pieces that ranks of a kind hold, in the order of StateViews::held.
std::vector<PieceSpan> pieces_of(const LocalRun& run, int kind) {
  shard::Mesh mesh = run.mesh;
  mesh.rank = kind;
  const shard::Layout layout = shard::layout_of(run.shape, mesh);
  const auto tensors = static_cast<int>(config::tensors_of(run.shape).size());
  std::vector<PieceSpan> out;
  for (int family = 0; family < 3; ++family)
    for (const shard::Piece& piece : layout.held)
      out.push_back({family * tensors + piece.tensor, piece.first, piece.count});
  return out;
}

std::vector<std::vector<PieceSpan>> pieces_of_kinds(const LocalRun& run) {
  std::vector<std::vector<PieceSpan>> out;
  for (int kind = 0; kind < kinds_of(run); ++kind) out.push_back(pieces_of(run, kind));
  return out;
}

/// Until the nodes are known, every rank is on one of its own.
RestoreWorld restore_world(const LocalRun& run, const std::vector<std::vector<PieceSpan>>& pieces,
                           std::span<const checkpoint::LogicalTensor> tensors) {
  RestoreWorld out;
  for (int rank = 0; rank < run.mesh.world; ++rank) {
    out.node_of.push_back(rank);
    out.kind_of.push_back(kind_of(run, rank));
  }
  for (const auto& spans : pieces) {
    auto& bytes = out.piece_bytes.emplace_back();
    for (const PieceSpan& span : spans) bytes.push_back(checkpoint::bytes_of(span, tensors));
  }
  return out;
}

/// One restore, from the offers to the state.
class Restore {
 public:
  Restore(const RunDir& dir, const RestoreOrder& order, const StateViews& views,
          const checkpoint::Facts& facts, comm::Communicator& world, const RestoreContext& context)
      : dir_(dir),
        order_(order),
        views_(views),
        world_(world),
        context_(context),
        named_(order.resume != "auto" && order.resume != "none"),
        at_path_(named_ && !order.restarted),
        spans_of_kind_(pieces_of_kinds(context.run)),
        ranks_(restore_world(context.run, spans_of_kind_, views.held.tensors)),
        shared_(dir, facts, order.other_numerics, order.trusted_step < 0 ? INT64_MAX : order.trusted_step + 1,
                order.durable, context.patience, world) {
    expects(context.run.mesh.world == world.size(), "the run is that of the world");
  }
  RestoredFrom run();

 private:
  void gather();
  void complete_list();
  SharedLevel::Parts parts_of_writer(int writer) const;
  std::optional<RestoreChoice> next_choice(const Fill& fill);
  void rule_out(const BadPieces& bad);
  void refuse(const PointId& point, const std::string& why);
  void say(const std::string& reason);
  bool replicas_agree(const std::vector<std::uint64_t>& digests);
  std::optional<std::string> why_another(const RestoreChoice& choice, const checkpoint::State& held,
                                         const std::vector<std::uint64_t>& digests, const StateDigest& found);
  checkpoint::RunPoint point_of(const RestoreChoice& choice);
  void count(const FillCounts& mine, RestoredFrom& out);

  const RunDir& dir_;
  const RestoreOrder& order_;
  const StateViews& views_;
  comm::Communicator& world_;
  const RestoreContext& context_;
  const bool named_;
  bool at_path_;  ///< the state is that of run.resume, or there is an error
  const std::vector<std::vector<PieceSpan>> spans_of_kind_;
  RestoreWorld ranks_;
  SharedLevel shared_;
  std::optional<NodeFiles> files_;
  std::vector<Offer> offers_;
  /// Of the offers that this rank reads, as they were offered: a buffer may since have been taken for what is
  /// restored.
  std::map<PointId, checkpoint::RunPoint> points_;
  RestoreRules rules_;
  bool list_ended_ = false;
  std::vector<std::string> said_;
};

void Restore::gather() {
  if (context_.local == nullptr || order_.rollback || at_path_) return;
  const checkpoint::StateFolder& own = context_.local->file();
  files_.emplace(own.path().parent_path(), context_.run, world_.rank(), &own);
  LocalOffers found = gather_offers(*files_, world_);
  ranks_.node_of = std::move(found.node_of);
  offers_ = std::move(found.offers);
  if (order_.trusted_step >= 0)
    std::erase_if(offers_, [&](const Offer& offer) { return offer.point.step > order_.trusted_step; });
  for (const Offer& offer : offers_)
    if (offer.reader == world_.rank())
      if (const auto what = sealed_as(files_->find(offer.of, offer.copy), offer))
        points_.emplace(offer.point, what->point);
}

/// The choice is among the newest checkpoint that nothing is known against, and all newer ones; or those that
/// are newer than one of which nothing is known.
void Restore::complete_list() {
  std::set<PointId> offered;
  for (const Offer& offer : offers_) offered.insert(offer.point);
  while (!at_path_ && !list_ended_ && !shared_.blocked()) {
    if (const auto& list = shared_.offers(); !list.empty())
      if (list.back().bad.empty() && !rules_.refused.contains(list.back().point)) return;
    const bool added = shared_.add_older(offered, [&](int writer) { return parts_of_writer(writer); });
    list_ended_ = !added && !shared_.blocked();
  }
}

SharedLevel::Parts Restore::parts_of_writer(int writer) const {
  // Its pieces are those of any rank of its kind, among them parts that others own: each counts as a whole.
  const int kind = ranks_.kind_of[writer];
  const std::vector<PieceSpan>& pieces = spans_of_kind_[kind];
  SharedLevel::Parts out;
  for (const PieceSpan& span : checkpoint::spans_of(views_.owned.tensors, views_.writers, writer))
    for (int i = 0; i < std::ssize(pieces); ++i)
      if (const PieceSpan& piece = pieces[i];
          piece.tensor == span.tensor && piece.first <= span.first && span.first < piece.first + piece.count)
        out.insert({kind, i});
  return out;
}

std::optional<RestoreChoice> Restore::next_choice(const Fill& fill) {
  for (;;) {
    complete_list();
    rules_.network = fill.network();
    RestoreChoice choice = choose(ranks_, offers_, shared_.offers(), rules_);
    // What lies in memory may be as new as the checkpoint that cannot be read. Nothing older is taken.
    const auto& blocked = shared_.blocked();
    if (choice.found && (!blocked || choice.point.step >= blocked->step)) {
      if (blocked) say(blocked->why.what());
      return choice;
    }
    if (blocked) {
      shared_.wait();
      continue;
    }
    for (const std::string& reason : choice.reasons) say(reason);
    if (!at_path_ && shared_.newest_known() >= 0) {
      auto why = shared_.notes();
      why.insert(why.end(), said_.begin(), said_.end());
      throw all_damaged(dir_, shared_.newest_known(), why);
    }
    if (!named_ || at_path_) return std::nullopt;
    at_path_ = true;  // restarted before there was a checkpoint of its own
    shared_.add(order_.resume, false);
  }
}

void Restore::say(const std::string& reason) {
  if (std::find(said_.begin(), said_.end(), reason) != said_.end()) return;
  said_.push_back(reason);
  if (world_.rank() == 0) log::warn("restore: {}", reason);
}

void Restore::rule_out(const BadPieces& bad) {
  if (!bad.refused.empty()) throw Error(static_cast<Exit>(bad.refused_code), bad.refused);
  for (const std::string& reason : bad.reasons) say(reason);
  if (!bad.network.empty()) say("ranks could not send each other pieces: " + bad.network);
  for (const auto& [offer, piece] : bad.pieces) offers_[offer].bad.insert(piece);
  for (const auto& [checkpoint, kind, piece] : bad.shared)
    shared_.offers()[checkpoint].bad.insert({kind, piece});
  if (!bad.shared.empty() && at_path_)
    throw preflight::cannot_resume(Exit::runtime, order_.resume,
                                   bad.reasons.empty() ? "it is damaged" : bad.reasons.front());
}

void Restore::refuse(const PointId& point, const std::string& why) {
  if (at_path_) throw preflight::cannot_resume(Exit::runtime, order_.resume, why);
  say(why);
  rules_.refused.insert(point);
}

/// Collective.
bool Restore::replicas_agree(const std::vector<std::uint64_t>& digests) {
  std::vector<std::uint64_t> seals(ranks_.kind_of.size());
  seals[world_.rank()] = seal_of(digests);
  world_.all_reduce(seals, comm::Scalar::sum);
  std::map<int, std::uint64_t> of_kind;
  for (std::size_t rank = 0; rank < seals.size(); ++rank)
    if (of_kind.try_emplace(ranks_.kind_of[rank], seals[rank]).first->second != seals[rank]) return false;
  return true;
}

/// Collective: every piece was sound; is the whole the state that was saved?
std::optional<std::string> Restore::why_another(const RestoreChoice& choice, const checkpoint::State& held,
                                                const std::vector<std::uint64_t>& digests,
                                                const StateDigest& found) {
  // One rank of each kind brings what it holds: over the kinds, every element once.
  std::vector<std::uint64_t> sum(held.tensors.size());
  const auto& kinds = ranks_.kind_of;
  const int kind = kinds[world_.rank()];
  if (std::find(kinds.begin(), kinds.end(), kind) - kinds.begin() == world_.rank())
    for (std::size_t i = 0; i < digests.size(); ++i) sum[held.pieces[i].tensor] += digests[i];
  world_.all_reduce(sum, comm::Scalar::sum);
  std::optional<Failure> failure;
  if (sum != found.tensors)
    failure = Failure{1, world_.rank(),
                      fmt::format("what the ranks own of step {} (digest {}) is not what they hold",
                                  choice.point.step, found.text())};
  try {
    if (const auto shared = choice.shared(); shared && !failure) {
      const checkpoint::Manifest& manifest = shared_.manifest(*shared);
      if (found.tensors != manifest.digests)
        failure = Failure{1, world_.rank(),
                          fmt::format("{} does not hold the state that it names (digest {}, should be {})",
                                      shared_.path(*shared).string(), found.text(),
                                      checkpoint::digest_text(manifest.state_digest))};
    }
  } catch (const Error& error) {
    // What cannot be read proves nothing against the state.
    const bool unknown = error.exit() == Exit::transient || error.exit() == Exit::no_requeue;
    failure = Failure{unknown ? static_cast<std::uint64_t>(error.exit()) : 1, world_.rank(), error.what()};
  }
  const auto worst = worst_failure(world_, failure);
  if (worst && worst->severity > 1) throw Error(static_cast<Exit>(worst->severity), worst->text);
  return worst ? std::optional(worst->text) : std::nullopt;
}

/// Collective.
checkpoint::RunPoint Restore::point_of(const RestoreChoice& choice) {
  std::string text;
  int root = 0;
  if (const auto shared = choice.shared()) {
    together(world_, world_.rank() == root, [&] {
      text = checkpoint::to_text(checkpoint::Sealed{shared_.manifest(*shared).point, {}});
    });
  } else {
    const auto offer =
        std::find_if(offers_.begin(), offers_.end(), [&](const Offer& o) { return o.point == choice.point; });
    expects(offer != offers_.end(), "the point was offered");
    root = offer->reader;
    together(world_, world_.rank() == root, [&] {
      const auto known = points_.find(choice.point);
      if (known == points_.end()) throw Error(Exit::runtime, "a snapshot changed while the run was restored");
      text = checkpoint::to_text(checkpoint::Sealed{known->second, {}});
    });
  }
  return checkpoint::sealed_from_text(comm::broadcast_text(world_, text, root)).value().point;
}

/// Collective.
void Restore::count(const FillCounts& mine, RestoredFrom& out) {
  std::vector<std::uint64_t> words;
  const auto add = [&](std::int64_t n) { words.push_back(static_cast<std::uint64_t>(n)); };
  for (int level = 0; level < levels; ++level) add(mine.pieces[level]), add(mine.bytes[level]);
  add(mine.read), add(mine.received);
  world_.all_reduce(words, comm::Scalar::sum);
  auto at = words.begin();
  const auto take = [&] { return static_cast<std::int64_t>(*at++); };
  for (int level = 0; level < levels; ++level) {
    out.pieces[level] = take();
    out.bytes[level] = take();
  }
  out.bytes_read = take();
  out.bytes_received = take();
  std::uint64_t longest[] = {static_cast<std::uint64_t>(mine.seconds_exchanging * 1e9)};
  world_.all_reduce(longest, comm::Scalar::max);
  out.seconds_exchanging = static_cast<double>(longest[0]) * 1e-9;
}

RestoredFrom Restore::run() {
  const auto start = Clock::now();
  RestoredFrom out;
  put_away_untrusted(dir_, order_.trusted_step, context_.local, context_.patience, world_);
  gather();
  if (at_path_) shared_.add(order_.resume, true);
  Fill fill({ranks_, views_, shared_, files_ ? &*files_ : nullptr, context_.local, context_.open_exchange,
             context_.limit},
            world_);
  bool shares = true;
  std::optional<RestoreChoice> choice;
  for (;;) {  // each time around, something less is left to choose from
    choice = next_choice(fill);
    if (!choice) break;
    const BadPieces bad = fill.round(*choice, offers_);
    if (!bad.none()) {
      rule_out(bad);
      continue;
    }
    const auto digests = fill.digests();
    if (!replicas_agree(digests)) {
      const std::string why = fmt::format("replicas got different states of step {}", choice->point.step);
      if (!std::exchange(shares, false)) refuse(choice->point, why);
      say(why);
      fill.stop_sharing();
      continue;
    }
    const StateDigest found = digest_state(parts_in(fill.held(), views_.owned.pieces), world_);
    if (const auto why = why_another(*choice, fill.held(), digests, found)) {
      refuse(choice->point, *why);
      continue;
    }
    out.fresh = false;
    out.digest = found.text();
    break;
  }
  if (choice) {
    for (const std::string& reason : choice->reasons) say(reason);
    out.point = point_of(*choice);
    out.level = name_of(choice->slowest());
    if (const auto shared = choice->shared()) {
      out.checkpoint = shared_.path(*shared);
      out.term = shared_.manifest(*shared).generation.term;
    }
    count(fill.counts(), out);
    fill.finish(out.point);
    out.network = fill.network_text();
  } else if (!said_.empty()) {
    if (world_.rank() == 0)
      log::warn("the run has no checkpoint yet and no snapshot is whole: training starts at step 0");
  }
  if (files_) remove_leftovers(*files_, ranks_.node_of, order_.trusted_step, world_);
  for (const auto* list : {&shared_.notes(), &std::as_const(said_)})
    for (const std::string& text : *list) out.note += (out.note.empty() ? "" : "; ") + text;
  out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return out;
}

}  // namespace

std::string text_of(const RestoredFrom& from) {
  if (from.fresh) return "";
  std::string out;
  for (int level = 0; level < levels; ++level)
    if (from.pieces[level] > 0)
      out += fmt::format("{}{} pieces {}", out.empty() ? "" : ", ", from.pieces[level],
                         name_of(static_cast<Level>(level)));
  if (from.bytes_read > 0) out += fmt::format("; {} read", size_text(from.bytes_read));
  if (from.bytes_received > 0)
    out += fmt::format("; {} over {} in {:.3f} s, {}/s", size_text(from.bytes_received),
                       from.network.empty() ? "the network" : from.network, from.seconds_exchanging,
                       size_text(static_cast<double>(from.bytes_received) / from.seconds_exchanging));
  return fmt::format(" ({}; {:.3f} s)", out, from.seconds);
}

RestoredFrom restore(const RunDir& dir, const RestoreOrder& order, const StateViews& views,
                     const checkpoint::Facts& facts, comm::Communicator& world,
                     const RestoreContext& context) {
  if (order.resume == "none" && !order.restarted) {
    refuse_to_mix(dir, order.durable, context.patience, world);
    return {};
  }
  return Restore(dir, order, views, facts, world, context).run();
}

}  // namespace holdfast::train
