#include "launcher/supervise/stage_table.hpp"

#include <algorithm>

namespace holdfast::launcher {
namespace {

using enum Stage;
constexpr Stages any = {gathering, clearing, starting, running};
constexpr Stages planned = {clearing, starting, running};
constexpr Stages watched = {gathering, starting, running};  // ranks may run
constexpr Stages up = {starting, running};
constexpr bool goes_on = true;

}  // namespace

// clang-format off
const StageTable& stage_table() {
  static const StageTable table = {
    // stage      what is found                       what follows                  next stage
    {{gathering}, Trigger::outcome_known,             Effect::tell_outcome,         over},
    {any,         Trigger::drain_overdue,             Effect::finish_drained},
    {planned,     Trigger::eviction_overdue,          Effect::end_attempt,          {}, goes_on},
    {any,         Trigger::nodes_silent,              Effect::lose_nodes,           {}, goes_on},
    {planned,     Trigger::minority_lasts,            Effect::resign,               over},
    {planned,     Trigger::checks_due,                Effect::check_spares,         {}, goes_on},

    {{gathering}, Trigger::agents_awaited,            Effect::wait},
    {{gathering}, Trigger::attempt_whole,             Effect::adopt,                running},
    {{gathering}, Trigger::attempt_broken,            Effect::end_attempt},
    {{gathering}, Trigger::checks_awaited,            Effect::wait},
    {{gathering}, Trigger::nothing_runs,              Effect::plan_first},

    {{clearing},  Trigger::node_not_cleared,          Effect::lose_nodes},
    {{clearing},  Trigger::most_not_cleared,          Effect::record_old_ranks,     {}, goes_on},
    {{clearing},  Trigger::clearing_overdue,          Effect::end_attempt},
    {{clearing},  Trigger::state_open,                Effect::choose_state,         {}, goes_on},
    {{clearing},  Trigger::all_cleared,               Effect::launch,               starting},

    {up,          Trigger::signalled_ended,           Effect::finish_drained},
    {up,          Trigger::signalled_left,            Effect::end_attempt},
    {up,          Trigger::signalled_run,             Effect::wait},
    {{running},   Trigger::all_done,                  Effect::finish_done},
    {up,          Trigger::failure_clear,             Effect::end_attempt},
    {up,          Trigger::failure_waits,             Effect::wait},
    {{starting},  Trigger::all_started,               Effect::confirm_start,        running},
    {{starting},  Trigger::start_overdue,             Effect::end_attempt},
    {{running},   Trigger::rank_vanished,             Effect::keep_vanished},
    {{running},   Trigger::rank_hung,                 Effect::end_attempt},
    {{running},   Trigger::pace_learned,              Effect::record_pace,          {}, goes_on},
    {{running},   Trigger::node_slow,                 Effect::record_slow},

    // stage      what is reported                    what follows
    {planned,     Trigger::node_lost,                 Effect::end_attempt},     // gathering: attempt_broken
    {any,         Trigger::node_back,                 Effect::take_node_back},
    {watched,     Trigger::rank_failed,               Effect::keep_failure},
    {watched,     Trigger::ended_to_stop,             Effect::finish_drained},
    {watched,     Trigger::ended_to_leave,            Effect::end_attempt},
    {any,         Trigger::no_state_to_save,          Effect::finish_drained},
    {watched,     Trigger::orders_changed,            Effect::tell_ranks},      // clearing: told at their start
    {{clearing},  Trigger::node_leaves,               Effect::end_attempt},     // gathering: attempt_whole tells
    {up,          Trigger::node_leaves,               Effect::tell_ranks},
    {planned,     Trigger::empty_node_leaves,         Effect::end_attempt},
    {watched,     Trigger::state_doubted,             Effect::end_attempt},
  };
  return table;
}
// clang-format on

const char* name_of(Stage stage) {
  switch (stage) {
    case gathering:
      return "gathering";
    case clearing:
      return "clearing";
    case starting:
      return "starting";
    case running:
      return "running";
    case over:
      return "over";
  }
  return "";
}

const StageRow* row_of(const StageTable& table, Stage stage, Trigger trigger) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const StageRow& r) {
    return r.trigger == trigger && r.stages.contains(stage);
  });
  return row == table.end() ? nullptr : &*row;
}

}  // namespace holdfast::launcher
