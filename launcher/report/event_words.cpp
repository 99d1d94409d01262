#include "launcher/report/event_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace holdfast::launcher::report {
namespace {

struct InWords {
  std::string operator()(const events::NodeLost& e) const {
    return fmt::format("{} was lost: {}", e.node, e.evidence);
  }
  std::string operator()(const events::NodeReturned& e) const {
    return fmt::format("{} answers again: {}", e.node, e.evidence);
  }
  std::string operator()(const events::NodeSuspected& e) const {
    return fmt::format("{} is a suspect: {}", e.node, e.evidence);
  }
  std::string operator()(const events::NodeEvicted& e) const {
    return fmt::format("{} was evicted: {}", e.node, e.evidence);
  }
  std::string operator()(const events::SparePromoted& e) const {
    return fmt::format("slot {}: {} takes the place of {}", e.slot, e.to, e.from.value_or("no node"));
  }
  std::string operator()(const events::FindingShared& e) const {
    return fmt::format("{} ({}) on {} of {} nodes, so it counts for none of them: {}", e.check, e.fitness,
                       e.nodes, e.of, e.evidence);
  }
  std::string operator()(const events::RunShrunk& e) const {
    return fmt::format("the run shrank to {} of {} nodes: {}", e.nodes, e.planned, e.evidence);
  }
  std::string operator()(const events::RunGrown& e) const {
    return fmt::format("the run grew to {} of {} nodes: {}", e.nodes, e.planned, e.evidence);
  }
  std::string operator()(const events::Straggler& e) const {
    return fmt::format("rank {} on {} takes {:.2f} times as long as the others: {}", e.rank, e.node, e.ratio,
                       e.evidence);
  }
  std::string operator()(const events::PartnerCopies& e) const {
    return e.on ? fmt::format("snapshot buffers of {} are copied to its partner again", e.node)
                : fmt::format("copies of the snapshot buffers of {} are off: {}", e.node, e.evidence);
  }
  std::string operator()(const events::SilentCorruption& e) const {
    return fmt::format("silent corruption at step {} ({}): {}", e.step, e.check, e.evidence);
  }
  std::string operator()(const events::OldRanksRemain& e) const {
    return fmt::format("the start of attempt {} waits: {}", e.attempt, e.evidence);
  }
  std::string operator()(const events::SharedReturned& e) const {
    return fmt::format("the run directory did not take what was written for {:.1f} s: {}", e.gone_s,
                       e.evidence);
  }
  std::string operator()(const events::CheckpointDropped& e) const {
    return fmt::format("the checkpoint of step {} was dropped: {}", e.step, e.note);
  }
  std::string operator()(const events::CheckpointDamaged& e) const {
    return fmt::format("the checkpoint of step {} is damaged and passed over: {}", e.step, e.note);
  }
  std::string operator()(const events::Paused& e) const {
    return fmt::format("paused at step {}: {}", e.step, e.reason);
  }
  std::string operator()(const events::Resumed& e) const {
    return fmt::format("resumed at step {}: {}", e.step, e.reason);
  }
  std::string operator()(const events::Drain& e) const {
    return fmt::format("told to save{}: {}", e.stop ? " and to end" : "", e.reason);
  }
  std::string operator()(const events::OrderHeard& e) const {
    return fmt::format("rank {} has taken the order to {}", e.rank, e.order == "pause" ? "hold" : e.order);
  }
  std::string operator()(const events::SettingsChanged& e) const {
    std::vector<std::string> changes;
    for (const auto& [key, change] : e.settings)
      changes.push_back(fmt::format("{} {} -> {}", key, change.before, change.now));
    return fmt::format("other settings than the job before: {}", fmt::join(changes, "; "));
  }
  std::string operator()(const events::LeaderElected& e) const {
    return fmt::format("{} leads the run, in job {}", e.node, e.job);
  }
  std::string operator()(const events::AttemptPlanned& e) const {
    return fmt::format("attempt {} is planned on {} nodes{}{}", e.attempt, e.placement.size(),
                       e.because.empty() ? "" : ": ", e.because);
  }
  std::string operator()(const events::AttemptAdopted& e) const {
    return fmt::format("attempt {} goes on under the new leader, at step {}", e.attempt, e.step);
  }
  std::string operator()(const events::StateChosen& e) const {
    const std::string why = e.note.empty() ? "" : ": " + e.note;
    if (e.step < 0)
      return fmt::format("attempt {} starts from no state in the memory of nodes{}", e.attempt, why);
    return fmt::format("attempt {} starts from step {} in the memory of nodes{}{}", e.attempt, e.step,
                       e.moved > 0 ? fmt::format(", {} ranks from copies", e.moved) : "", why);
  }
  std::string operator()(const events::PlacementVerified& e) const {
    return fmt::format("all {} ranks of attempt {} are up", e.ranks, e.attempt);
  }
  std::string operator()(const events::Restored& e) const {
    return e.step == 0 ? fmt::format("attempt {} begins at step 0", e.attempt)
                       : fmt::format("attempt {} has restored step {} ({})", e.attempt, e.step, e.level);
  }
  std::string operator()(const events::FirstStep& e) const {
    return fmt::format("attempt {} trains: step {} is done", e.attempt, e.step);
  }
  std::string operator()(const events::AttemptEnded& e) const {
    std::string out = fmt::format("attempt {} ended at {}: {}", e.attempt,
                                  e.reports ? fmt::format("step {}", e.step) : "an unknown step", e.cause);
    if (!e.node.empty()) out += " on " + e.node;
    if (!e.evidence.empty()) out += fmt::format(" ({})", e.evidence.front());
    return out;
  }
  std::string operator()(const events::EvictionOrdered& e) const {
    return fmt::format("{} is to leave after a save: {}", e.node, e.reason);
  }
  std::string operator()(const events::CheckpointDurable& e) const {
    return fmt::format("the checkpoint of step {} is durable{}{}", e.step, e.note.empty() ? "" : ": ",
                       e.note);
  }
  std::string operator()(const events::RunFinished& e) const {
    return fmt::format("the run ended: {}{}{}", e.status, e.why.empty() ? "" : ": ", e.why);
  }
  std::string operator()(const auto&) const { return ""; }
};

}  // namespace

std::string in_words(const Event& event) { return std::visit(InWords{}, event); }

}  // namespace holdfast::launcher::report
