// Orders of people (`holdfast ctl`), and the answers to them.
//
// clang-format off
//   order    what it does                                    refused when
//   save     drain: save now, go on                          no ranks train; the ranks do not follow orders
//   stop     drain: save, end; exit 93, not requeued         -
//   pause    the ranks hold between two steps                the run is ending; the ranks do not follow orders
//   resume   the ranks go on                                 -
//   evict    a spare: never used again in this job; a node   there is no such node; nothing could take its slot and the
//            with ranks: save, then a spare takes its slot   run would have to end; the ranks do not follow orders
//   spares   the state of every node, as JSON                -
// clang-format on
// Once the run is over, all of them are refused. An order given twice is one order. ranks_follow() tells
// whether the ranks follow orders.
#include <fmt/format.h>

#include "launcher/supervise/supervisor.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {

control::OrderTaken Supervisor::order(const control::Order& what) {
  using Verb = control::Order::Verb;
  const auto taken = [&](std::string says) { return control::OrderTaken{what.id, true, std::move(says)}; };
  const auto refused = [&](std::string says) { return control::OrderTaken{what.id, false, std::move(says)}; };
  if (what.verb == Verb::spares) return taken(spares_text());
  if (stage_ == Stage::over || state_.outcome) return refused("the run is over");
  const std::string by = what.by.empty() ? "an order" : "an order of " + what.by;
  switch (what.verb) {
    case Verb::save:
      if (!state_.attempt_live()) return refused("no ranks train");
      if (!ranks_follow()) return refused(why_ranks_cannot("save"));
      if (state_.asked_of_ranks()) return taken("a save is under way");
      // Ranks that have not loaded their state yet may find a newer one in the memory of their nodes.
      if (state_.attempts.back().restored && state_.durable_step > 0 && state_.durable_step >= highest_step())
        return taken(fmt::format("the state of step {} is saved", state_.durable_step));
      drain({false, by}, false);
      return taken(state_.paused ? "the state is saved when the run goes on: it is paused"
                                 : "the state is saved after this step");
    case Verb::stop:
      drain({true, by}, true);
      if (stage_ == Stage::over) return taken("the run has ended: there was nothing to save");
      if (!ranks_follow())
        return taken(fmt::format(
            "the ranks get SIGTERM and {} s to save (checkpoint.drain_s), then the run ends", drain_s_));
      return taken("the state is saved after this step, and the run ends");
    case Verb::pause:
      if (state_.paused) return taken("the run is paused");
      if (stopping()) return refused("the run is ending");
      if (!ranks_follow()) return refused(why_ranks_cannot("hold"));
      record(events::Paused{attempt(), highest_step(), by});
      if (ranks_hear()) tell_ranks();
      return taken("the ranks hold after this step");
    case Verb::resume:
      if (!state_.paused) return taken("the run is not paused");
      record(events::Resumed{attempt(), highest_step(), by});
      actions_.push_back(
          PauseRanks{false});  // at any stage: else agents would hold the ranks of the next attempt
      return taken("the ranks go on");
    case Verb::evict:
      return order_eviction(what, by);
    case Verb::spares:
      break;
  }
  return refused("an unknown order");
}

control::OrderTaken Supervisor::order_eviction(const control::Order& what, const std::string& by) {
  const int n = roster_.node_called(what.node);
  if (n < 0) return {what.id, false, fmt::format("the job has no node {}", what.node)};
  if (lost(n)) return {what.id, true, fmt::format("{} is lost or evicted already", what.node)};
  if (state_.evicting.contains(what.node))
    return {what.id, true, fmt::format("{} is leaving already", what.node)};
  if (slot_of(n) < 0) {
    evict(n, by);
    return {what.id, true, fmt::format("{} is no spare any more", what.node)};
  }
  if (state_.attempt_live() && !ranks_follow()) return {what.id, false, why_ranks_cannot("save and leave")};
  RunState without = without_unheard_nodes();
  without.lost.insert(what.node);
  Failure leaves;
  leaves.kind = Failure::Kind::evicted;
  leaves.node = n;
  const Decision then = decide(
      {roster_, patient(), facts_.shrinking, without, placement_, views(), hours_left()}, leaves, false);
  if (then.answer == PolicyAction::stop)
    return {what.id, false,
            fmt::format("nothing could take the slot of {} ({}), and the run would end: use stop?", what.node,
                        then.because)};
  evict(n, by);
  switch (then.answer) {
    case PolicyAction::shrink:
      return {what.id, true,
              fmt::format("{} leaves when the state is saved; the run goes on, smaller", what.node)};
    case PolicyAction::requeue:
      return {
          what.id, true,
          fmt::format("{} leaves when the state is saved; there is no spare, so the run goes back into the "
                      "queue without it",
                      what.node)};
    default:
      return {what.id, true,
              fmt::format("{} leaves when the state is saved; a spare takes its slot", what.node)};
  }
}

}  // namespace holdfast::launcher
