// How the leader carries out the supervisor's decisions: each waits until it is on record.
#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/index/best.hpp"
#include "checkpoint/index/files_check.hpp"
#include "launcher/agent/leader/leader.hpp"
#include "launcher/agent/leader/old_logs.hpp"
#include "launcher/agent/ranks/rank_start.hpp"
#include "src/base/log.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {
constexpr std::chrono::seconds judge_limit{60};  // storage that hangs holds up the ranks, too
constexpr double gib = 1 << 30;
}  // namespace

std::string admin_line(const events::AttemptEnded& ended) {
  const auto fault = ledger_entry({{}, ended}, "");
  return fault && fault->hardware ? slurm::drain_line(fault->node, fault->cause + ": " + fault->evidence)
                                  : "";
}

/// Queues all that the supervisor has decided, and then `then`.
void Leader::act(std::function<void()> then) {
  if (over_) return;
  for (auto& action : supervisor_.take_actions()) {
    if (auto* record = std::get_if<Record>(&action))
      if (auto* ended = std::get_if<events::AttemptEnded>(&record->entry.event))
        ended->admin = admin_line(*ended);
    steps_.emplace_back(std::move(action));
  }
  if (then) steps_.emplace_back(std::move(then));
  write_next_batch();
}

/// A batch holds the records at the front of the queue, and the result, which is on disk before agents are
/// told to leave.
void Leader::write_next_batch() {
  if (writing_ || over_ || steps_.empty()) return;
  JournalWriter::Batch batch;
  std::size_t count = 0;
  for (; count < steps_.size(); ++count) {
    const auto* action = std::get_if<Action>(&steps_[count]);
    if (!action) continue;
    if (const auto* record = std::get_if<Record>(action)) {
      if (batch.entries.size() < count)
        break;  // it belongs to the next batch: the steps before it come first
      batch.entries.push_back(record->entry);
    } else if (std::holds_alternative<FinishRun>(*action)) {
      if (batch.result) break;
      batch.result = [run = run_, state = supervisor_.state(), keeps_best = config_.eval.keep_best] {
        std::optional<BestCheckpoint> kept;
        if (keeps_best)
          if (const auto best = checkpoint::best_of(run.checkpoints()))
            kept = {best->step, best->held_out_loss};
        files::replace_atomically(run.result(), result_of(state, kept).dump(2) + "\n");
      };
    }
  }
  writing_ = true;
  journal_writer_.put(std::move(batch), [this, count](const std::optional<std::string>& trouble) {
    writing_ = false;
    if (trouble) return resign(*trouble);
    carry_out(count);
    write_next_batch();
  });
}

void Leader::carry_out(std::size_t count) {
  for (; count > 0 && !over_; --count) {
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    if (const auto* action = std::get_if<Action>(&step))
      carry_out(*action);
    else
      std::get<std::function<void()>>(step)();
  }
}

void Leader::carry_out(const Action& action) {
  std::visit(Overloaded{
                 [&](const Record& record) {
                   log::info("{}", line_of(record.entry.event));
                   remember(record.entry);
                   if (const auto* lost = std::get_if<events::NodeLost>(&record.entry.event))
                     call_again(lost->node);
                 },
                 [&](const ClearAll& clear) {
                   ordered_.attempt = clear.attempt;
                   ordered_.starts.clear();
                   ordered_.fetches.clear();
                   ordered_.drain.reset();  // the next attempt is told anew
                   coordinator_->begin({term_, clear.attempt}, supervisor_.world());
                   send_all(Clear{term_, clear.attempt});
                   supervisor_.at(loop_.steady_seconds());
                   supervisor_.ordered();
                 },
                 [&](const FetchStates& states) { fetch(states); },
                 [&](const Launch& start) { judge_and_launch(start); },
                 [&](const TellRanks& tell) {
                   ordered_.drain = tell.what;
                   send_all(tell.what);
                 },
                 [&](const PauseRanks& pause) {
                   ordered_.paused = pause.on;
                   send_all(Pause{pause.on});
                 },
                 [&](const DumpRank& dump) {
                   send(dump.node, DumpStacks{supervisor_.attempt(), dump.rank});
                 },
                 [&](const CheckNodes& check) {
                   for (const int n : check.nodes) send(n, CheckNode{check.numerics});
                 },
                 [&](const FinishRun& finish) {
                   ordered_.finish = finish.exit_code;
                   send_all(Finish{finish.exit_code});
                   // It may have been lost just now.
                   if (!script_is_lost() && supervisor_.hears(roster_.batch_host)) return;
                   auto [failed, doubtful] = unwanted_nodes(supervisor_.state());
                   script_.conclude(finish.exit_code, {static_cast<int>(roster_.nodes.size()),
                                                       std::move(failed), std::move(doubtful)});
                 },
                 [&](const Resign& resignation) { resign(resignation.why); },
             },
             action);
}

/// A program that does not check its own checkpoints is told of none whose files are proven to be damaged.
void Leader::judge_and_launch(const Launch& what) {
  if (config::promises_of(config_.rank).writes_run_dir || what.from.durable_steps.empty() ||
      what.from.sealed_step >= 0)
    return launch(what);
  const auto is_due = [this, what, done = std::make_shared<bool>(false)] {
    return !std::exchange(*done, true) && !over_ && supervisor_.attempt() == what.attempt &&
           supervisor_.stage() == Stage::starting;
  };
  judge_timer_ = loop_.after(judge_limit, [this, is_due, what] {
    if (!is_due()) return;
    log::warn("the newest checkpoint could not be read in time; attempt {} begins with it", what.attempt);
    launch(what);
  });
  judge_.ask(
      [folder = run_.checkpoints(), steps = what.from.durable_steps,
       bytes = config_.checkpoint.check_files_gib * gib]() -> checkpoint::Judgement {
        try {
          return checkpoint::judge(folder, steps, static_cast<std::int64_t>(bytes));
        } catch (const std::exception& error) {
          log::warn("the checkpoints of the program cannot be looked at: {}", error.what());
          return {steps, {}};
        }
      },
      [this, is_due, what](const checkpoint::Judgement& found) {
        if (!is_due()) return;
        supervisor_.at(loop_.steady_seconds());
        if (!supervisor_.checkpoints_judged(found.damaged, !found.steps.empty())) return act();
        act([this, what, steps = found.steps] {
          if (supervisor_.attempt() != what.attempt || supervisor_.stage() != Stage::starting) return;
          Launch judged = what;
          judged.from.durable_steps = steps;
          launch(judged);
        });
      });
}

void Leader::fetch(const FetchStates& what) {
  ordered_.fetches.clear();
  for (const auto& move : what.moves) {
    auto& order = ordered_.fetches
                      .try_emplace(move.to, FetchState{what.attempt, what.state.step, what.state.attempt, {}})
                      .first->second;
    order.from.push_back({move.rank, node(move.from).name, connections_[move.from].mover});
  }
  for (const auto& [n, order] : ordered_.fetches) send(n, order);
}

void Leader::launch(const Launch& what) {
  const int slots = static_cast<int>(what.placement.size());
  coordinator_->begin({term_, what.attempt}, slots * roster_.ranks_per_node);
  fences_.begin(what.attempt);
  const int first = what.placement.front();
  StartRanks order;
  order.term = term_;
  order.attempt = what.attempt;
  order.ranks_per_node = roster_.ranks_per_node;
  order.master = node(first).for_programs();
  order.master_port = connections_[first].free_port;
  order.from = what.from;
  for (const int n : what.placement) {
    order.nodes.push_back(node(n).name);
    order.movers.push_back(connections_[n].mover);
  }
  for (; order.slot < slots; ++order.slot) {
    const int n = what.placement[order.slot];
    ordered_.starts[n] = order;
    send(n, order);
  }
  supervisor_.at(loop_.steady_seconds());
  supervisor_.ordered();
  side_.run([run = run_, attempt = what.attempt, kept = config_.supervise.log_attempts] {
    remove_old_logs(run, attempt, kept);
  });
}

/// Writes to the ledger, for other jobs. Failing to is only a warning.
void Leader::remember(const LogEntry& event) {
  const auto& folder = config_.supervise.ledger;
  const auto entry = folder.empty() ? std::nullopt : ledger_entry(event, roster_.job);
  if (!entry) return;
  side_.run([folder, entry] {
    try {
      append_to_ledger(folder, *entry);
    } catch (const std::exception& error) {
      log::warn("the ledger of nodes is not written: {}", error.what());
    }
  });
}

/// The event holds the first lines only; the file holds all.
void Leader::keep_stacks(int n, const Stacks& what) {
  log::info("stacks of rank {} on {} came", what.rank, node(n).name);
  side_.run([folder = attempt_logs(run_, what.attempt), what] {
    try {
      files::fs::create_directories(folder);
      files::replace_atomically(folder / fmt::format("stacks-{:05}.txt", what.rank), what.text + "\n");
    } catch (const std::exception& error) {
      log::warn("stacks of rank {} cannot be kept: {}", what.rank, error.what());
    }
  });
}

}  // namespace holdfast::launcher
