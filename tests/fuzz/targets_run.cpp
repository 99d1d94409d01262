// A run directory, as `status` and `report` read it, and the ledger of nodes.
#include <cmath>

#include "launcher/report/facts.hpp"
#include "launcher/report/page.hpp"
#include "launcher/supervise/ledger.hpp"
#include "launcher/supervise/status_view.hpp"
#include "src/base/run_dir.hpp"
#include "tests/fuzz/scratch.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {

namespace report = launcher::report;

void try_run(std::string_view bytes) {
  static const Scratch scratch;
  static const auto settings = scratch.write("config.toml", "[run]\nname = \"a\"\n[train]\nsteps = 100\n");
  for (const char* name :
       {"events/0001.jsonl", "events/0002.jsonl", "metrics.jsonl", "result.json", "plan.json"})
    scratch.write(name, take_part(bytes));
  const RunDir run{settings.parent_path()};
  try {
    const report::Facts facts = report::read_facts(run);
    const report::Page page = report::page_of(facts);
    report::html(page);
    report::markdown(page);
    launcher::StatusFacts status{.name = facts.name, .steps = facts.steps, .state = facts.state};
    status.last_step = report::last_metrics_line(run.metrics());
    status.now = 1.8e9;
    launcher::count_steps(status);
    launcher::status_text(status);
    launcher::status_json(status);
  } catch (const Error&) {
  }
}

void try_ledger(std::string_view bytes) {
  static const Scratch scratch;
  scratch.write("n1.jsonl", bytes);
  std::string problem;
  const auto histories = launcher::read_ledger(scratch.path(), {"n1"}, 1.8e9, problem);
  expects(problem.empty(), "a file that can be read is read, whatever is in it");
  const launcher::NodeHistory& history = histories.at("n1");
  expects(std::isfinite(history.weight) && history.weight >= 0, "a weight is a number");
  expects(history.past_failures() >= 0, "failures are counted");
}

}  // namespace holdfast::fuzz
