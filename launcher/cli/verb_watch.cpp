#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "launcher/cli/find_run.hpp"
#include "launcher/cli/order_from_here.hpp"
#include "launcher/cli/run_watcher.hpp"
#include "launcher/cli/terminal.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/watch/dialog.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis between_looks{1000};
constexpr std::chrono::seconds answer_shown{10};
constexpr int signal_codes = 128;  // of exit codes, with the signal's number

std::string give_confirmed(const RunDir& run, const watch::Confirmed& order) {
  try {
    const auto answer = order_from_here(run, order.verb, order.node);
    return answer.taken ? answer.says : "The run refuses: " + answer.says;
  } catch (const Error& error) {
    return error.what();
  }
}

/// Until the user quits: the exit code.
int watch_run(const RunDir& run, RunWatcher& watcher) {
  const auto charset = utf8_locale() ? watch::Charset::utf8 : watch::Charset::ascii;
  watch::Dialog dialog;
  std::string said;  // to the last order, until the next key, or for a while
  auto said_until = Clock::now();
  Terminal terminal;
  const auto draw = [&] {
    const auto [width, height] = terminal.size();
    terminal.draw(watch::screen(watcher.view(), width, height, charset));
  };
  auto next_look = Clock::now();
  while (true) {
    if (Clock::now() >= next_look) {
      watcher.look();
      next_look = Clock::now() + between_looks;
    }
    if (Clock::now() >= said_until) said.clear();
    const RunState& state = watcher.view().status.state;
    const watch::Situation now{state.outcome.has_value(), state.paused};
    watcher.view().footer = said.empty() ? dialog.line(now) : said;
    draw();
    const auto left = std::chrono::ceil<Millis>(next_look - Clock::now());
    const auto input = terminal.wait(std::clamp(left, Millis(0), between_looks));
    if (input.ended_by != 0) return signal_codes + input.ended_by;
    for (const char key : input.keys) {
      said.clear();
      const auto order = dialog.take(key, now);
      if (dialog.quit()) return 0;
      if (!order) continue;
      watcher.view().footer = fmt::format("The run is asked ({} s at most) ...", order_limit_s);
      draw();
      said = give_confirmed(run, *order);
      said_until = Clock::now() + answer_shown;
      next_look = Clock::now();
    }
  }
}

}  // namespace

void add_watch(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand(
      "watch", "Show a run live in the terminal: loss, speed, nodes, events; keys give it orders");
  const auto name = std::make_shared<std::string>();
  verb->add_option("RUN", *name, "The run directory, its name in runs/, or the job's id")->required();
  verb->callback([name, &exit_code] {
    slurm::ClusterCli cluster;
    const RunDir run = find_run(*name, cluster);
    RunWatcher watcher(run);
    exit_code = watch_run(run, watcher);
    std::cout << fmt::format("{}: {}\n", watcher.view().status.name, headline(watcher.view().status));
  });
}

}  // namespace holdfast::launcher
