#include "launcher/supervise/order_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::launcher {
namespace {

using Verb = control::Order::Verb;
using Facts = OrderFacts;

constexpr Stages before_end = {Stage::gathering, Stage::clearing, Stage::starting, Stage::running};
constexpr Stages at_end = {Stage::over};
constexpr Stages always = {Stage::gathering, Stage::clearing, Stage::starting, Stage::running, Stage::over};
constexpr bool taken = true, refused = false;

bool otherwise(const Facts&) { return true; }

std::string unfollowed(Verb order, const Facts& facts) {
  const char* what = order == Verb::save ? "save" : order == Verb::pause ? "hold" : "save and leave";
  const std::string signal =
      facts.saves_on_sigterm ? fmt::format("stop sends it SIGTERM and gives it {} s to save", facts.drain_s)
                             : fmt::format("stop sends it SIGTERM and gives it {} s", facts.drain_s);
  return fmt::format(
      "the program does not report to its agents and would not get the order to {}; {}. Use the client "
      "(docs/manual/any-program.md){}?",
      what, signal,
      order == Verb::evict && !facts.saves_on_sigterm ? ", or rank.kind = \"sigterm\" if it saves on SIGTERM"
                                                      : "");
}

}  // namespace

std::string untaken_words(Verb order, int drain_s) {
  const char* what = order == Verb::save ? "save" : order == Verb::pause ? "hold" : "save and end";
  return fmt::format(
      "the ranks are told to {}, and none has taken the order yet: a program takes it when it asks the "
      "client for "
      "orders, after a step{}; 'holdfast status' shows whether one has",
      what,
      order == Verb::stop ? fmt::format(", and those that have not ended after {} s are ended", drain_s)
                          : "");
}

// clang-format off
const OrderTable& order_table() {
  static const OrderTable table = {
    // order        stages      when                                                             answer   deed              in words
    {Verb::spares,  always,     otherwise,                                                       taken,   Deed::list_nodes, ""},
    {std::nullopt,  at_end,     otherwise,                                                       refused, Deed::nothing,    "the run is over"},

    {Verb::save,    before_end, [](const Facts& f) { return !f.attempt_live; },                  refused, Deed::nothing,    "no ranks train"},
    {Verb::save,    before_end, [](const Facts& f) { return !f.follows; },                       refused, Deed::nothing,    "{unfollowed}"},
    {Verb::save,    before_end, [](const Facts& f) { return f.untaken; },                        taken,   Deed::nothing,    "{untaken}"},
    {Verb::save,    before_end, [](const Facts& f) { return f.asked; },                          taken,   Deed::nothing,    "a save is under way"},
    {Verb::save,    before_end, [](const Facts& f) { return f.saved; },                          taken,   Deed::nothing,    "the state of step {step} is saved"},
    {Verb::save,    before_end, [](const Facts& f) { return f.paused; },                         taken,   Deed::save,       "the run is paused: its state is saved when it goes on, or at once by a program that looks for orders while it holds"},
    {Verb::save,    before_end, otherwise,                                                       taken,   Deed::save,       "the state is saved after this step"},

    {Verb::stop,    before_end, [](const Facts& f) { return !f.stopping && !f.worth_saving; },   taken,   Deed::stop,       "the run has ended: there was nothing to save"},
    {Verb::stop,    before_end, [](const Facts& f) { return !f.follows && f.saves_on_sigterm; }, taken,   Deed::stop,       "the ranks get SIGTERM and {drain_s} s to save (checkpoint.drain_s), then the run ends"},
    {Verb::stop,    before_end, [](const Facts& f) { return !f.follows; },                       taken,   Deed::stop,       "the ranks get SIGTERM and {drain_s} s (checkpoint.drain_s), then the run ends; Holdfast does not know that they save (rank.kind): what they have not saved is lost"},
    {Verb::stop,    before_end, otherwise,                                                       taken,   Deed::stop,       "the state is saved after this step, and the run ends"},

    {Verb::pause,   before_end, [](const Facts& f) { return f.paused; },                         taken,   Deed::nothing,    "the run is paused"},
    {Verb::pause,   before_end, [](const Facts& f) { return f.stopping; },                       refused, Deed::nothing,    "the run is ending"},
    {Verb::pause,   before_end, [](const Facts& f) { return !f.follows; },                       refused, Deed::nothing,    "{unfollowed}"},
    {Verb::pause,   before_end, otherwise,                                                       taken,   Deed::hold,       "the ranks hold after this step"},

    {Verb::resume,  before_end, [](const Facts& f) { return !f.paused; },                        taken,   Deed::nothing,    "the run is not paused"},
    {Verb::resume,  before_end, otherwise,                                                       taken,   Deed::let_go,     "the ranks go on"},

    {Verb::evict,   before_end, [](const Facts& f) { return f.role == Facts::Role::none; },      refused, Deed::nothing,    "the job has no node {node}"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.role == Facts::Role::gone; },      taken,   Deed::nothing,    "{node} is lost or evicted already"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.role == Facts::Role::leaving; },   taken,   Deed::nothing,    "{node} is leaving already"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.role == Facts::Role::spare; },     taken,   Deed::evict,      "{node} is no spare any more"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.attempt_live && !f.follows && !f.saves_on_sigterm; }, refused, Deed::nothing, "{unfollowed}"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.then == PolicyAction::stop; },     refused, Deed::nothing,    "nothing could take the slot of {node} ({because}), and the run would end: use stop?"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.then == PolicyAction::shrink; },   taken,   Deed::evict,      "{node} leaves when the state is saved; the run goes on, smaller"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.then == PolicyAction::requeue; },  taken,   Deed::evict,      "{node} leaves when the state is saved; there is no fit spare, so the run goes back into the queue without it"},
    {Verb::evict,   before_end, [](const Facts& f) { return f.attempt_live && !f.follows; },     taken,   Deed::evict,      "{node} leaves when the ranks have ended: they get SIGTERM and {drain_s} s to save; a spare takes its slot"},
    {Verb::evict,   before_end, otherwise,                                                       taken,   Deed::evict,      "{node} leaves when the state is saved; a spare takes its slot"},
  };
  return table;
}
// clang-format on

OrderAnswer answer_to(Verb order, const OrderFacts& facts, const OrderTable& table) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const OrderRow& r) {
    return r.order.value_or(order) == order && r.stages.contains(facts.stage) && r.holds(facts);
  });
  if (row == table.end()) return {};
  return {
      row->taken, row->deed,
      fmt::format(fmt::runtime(row->says), fmt::arg("node", facts.node), fmt::arg("step", facts.durable_step),
                  fmt::arg("drain_s", facts.drain_s), fmt::arg("because", facts.because),
                  fmt::arg("untaken", untaken_words(order, facts.drain_s)),
                  fmt::arg("unfollowed", unfollowed(order, facts)))};
}

}  // namespace holdfast::launcher
