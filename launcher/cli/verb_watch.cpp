#include <fmt/format.h>

#include <iostream>
#include <utility>

#include "launcher/cli/live_view.hpp"
#include "launcher/cli/order_from_here.hpp"
#include "launcher/cli/terminal.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/supervise/status_view.hpp"
#include "launcher/watch/dialog.hpp"
#include "slurm/cluster_cli.hpp"
#include "slurm/find_run.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/within.hpp"

namespace holdfast::launcher {
namespace {

constexpr Millis between_frames{250};
constexpr std::chrono::seconds answer_shown{10};
constexpr std::chrono::seconds storage_limit{10}, slurm_limit{20};  // to find the run
constexpr int signal_codes = 128;                                   // of exit codes, with the signal's number

std::string give_confirmed(const RunDir& run, const watch::Confirmed& order) {
  try {
    const auto answer = order_from_here(run, order.verb, order.node);
    return answer.taken ? answer.says : "The run refuses: " + answer.says;
  } catch (const Error& error) {
    return error.what();
  }
}

class Watch {
 public:
  explicit Watch(const RunDir& run) : run_(run), live_(run) {}
  /// Until the user quits: the exit code.
  int run();
  std::string last_words() const {
    const auto view = live_.view();
    return fmt::format("{}: {}", view.status.name, headline(view.status));
  }

 private:
  void draw(watch::View view) {
    const auto [width, height] = terminal_.size();
    terminal_.draw(watch::screen(view, width, height, charset_));
  }
  /// True where the user quits.
  bool show_again();
  void give(const watch::Confirmed& order);

  const RunDir run_;
  const watch::Charset charset_ = utf8_locale() ? watch::Charset::utf8 : watch::Charset::ascii;
  Terminal terminal_;
  LiveView live_;  // its threads have the terminal's signals blocked
  watch::Dialog dialog_;
  std::string said_;  // to the last order, until the next key, or for a while
  Clock::time_point said_until_ = Clock::now();
  int ended_by_ = 0;
};

bool Watch::show_again() {
  auto replay = live_.replay();
  auto shown_at = Clock::now();
  while (replay && !replay->over()) {
    draw(replay->view());
    const auto input = terminal_.wait(between_frames);
    if ((ended_by_ = input.ended_by) != 0) return false;
    const auto now = Clock::now();
    replay->pass(std::chrono::duration<double>(now - std::exchange(shown_at, now)).count());
    for (const char key : input.keys) replay->take(key);
  }
  return replay && replay->quit();
}

void Watch::give(const watch::Confirmed& order) {
  auto view = live_.view();
  view.footer = fmt::format("The run is asked ({} s at most) ...", order_limit_s);
  draw(std::move(view));
  said_ = give_confirmed(run_, order);
  said_until_ = Clock::now() + answer_shown;
  live_.hurry();
}

int Watch::run() {
  while (true) {
    auto view = live_.view();
    if (Clock::now() >= said_until_) said_.clear();
    const RunState& state = view.status.state;
    const watch::Situation now{state.outcome.has_value(), state.paused};
    view.footer = said_.empty() ? dialog_.line(now) : said_;
    draw(std::move(view));
    const auto input = terminal_.wait(between_frames);
    ended_by_ = input.ended_by;
    for (const char key : input.keys) {
      if (ended_by_ != 0) break;
      said_.clear();
      const auto order = dialog_.take(key, now);
      if (dialog_.quit()) return 0;
      if (dialog_.replay() && show_again()) return 0;
      if (order) give(*order);
    }
    if (ended_by_ != 0) return signal_codes + ended_by_;
  }
}

}  // namespace

void add_watch(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand(
      "watch", "Show a run live in the terminal: loss, speed, nodes, events; keys give it orders");
  const auto name = std::make_shared<std::string>();
  verb->add_option("RUN", *name, "The run directory, its name in runs/, or the job's id")->required();
  verb->callback([name, &exit_code] {
    const RunDir run =
        within(storage_limit + (slurm::may_be_job(*name) ? slurm_limit : std::chrono::seconds(0)), *name,
               [name = *name] {
                 slurm::ClusterCli cluster;
                 return find_run(name, cluster);
               });
    std::string words;
    {
      Watch watch(run);
      exit_code = watch.run();
      words = watch.last_words();
    }
    std::cout << words << '\n';
  });
}

}  // namespace holdfast::launcher
