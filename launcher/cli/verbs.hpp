#pragma once
// The verbs of `holdfast`: one table, one file for each. A new verb is a line in verbs.cpp.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace holdfast::launcher {

/// Adds the verb to `app`; when it was typed, parsing runs it, and it leaves its exit code in `exit_code` or
/// throws Error.
using AddVerb = void (*)(CLI::App& app, int& exit_code);

struct Verb {
  std::string name;
  AddVerb add;
  std::vector<std::string> examples = {};
};
const std::vector<Verb>& verbs();

/// `holdfast plan JOB.toml [--json] [--ranks] [-w HOSTLIST]`
void add_plan(CLI::App& app, int& exit_code);
/// `holdfast submit JOB.toml [--dry-run] [--parsable] [-J NAME] [-- sbatch flags]`: plan, prepare the run
/// directory, hand the job to SLURM.
void add_submit(CLI::App& app, int& exit_code);
/// `holdfast run RUN_DIR`: inside an allocation, keeps one agent on every node until the run is over.
void add_run(CLI::App& app, int& exit_code);
/// `holdfast agent RUN_DIR --node NAME`: the daemon of a node (started by `run`).
void add_agent(CLI::App& app, int& exit_code);
/// `holdfast avail [-p PARTITION] [--json]`: what a job could get now.
void add_avail(CLI::App& app, int& exit_code);
/// `holdfast ls [FOLDER...] [--json]`
void add_ls(CLI::App& app, int& exit_code);
/// `holdfast status RUN_DIR [--json]`
void add_status(CLI::App& app, int& exit_code);
/// `holdfast watch RUN`: a live view in the terminal, with keys for orders.
void add_watch(CLI::App& app, int& exit_code);
/// `holdfast report RUN_DIR [-o FILE] [--markdown]`
void add_report(CLI::App& app, int& exit_code);
/// `holdfast events RUN_DIR`: the event log, one JSON object a line.
void add_events(CLI::App& app, int& exit_code);
/// `holdfast metrics RUN [-f] [--tensorboard FOLDER] [--openmetrics FILE]`
void add_metrics(CLI::App& app, int& exit_code);
/// `holdfast logs RUN [-f] [--rank N] [--attempt K] [--node NAME] [--job]`
void add_logs(CLI::App& app, int& exit_code);
/// `holdfast ctl`: orders to a run that is under way.
void add_ctl(CLI::App& app, int& exit_code);
/// `holdfast doctor`: is this node fit to train, are all nodes of an allocation, and is the network between
/// them?
void add_doctor(CLI::App& app, int& exit_code);
/// `holdfast init`: a cluster file from what SLURM and this node tell.
void add_init(CLI::App& app, int& exit_code);
/// `holdfast drill DRILL.toml [JOB.toml]`: inject faults, and compare the results with those of an
/// undisturbed run.
void add_drill(CLI::App& app, int& exit_code);
/// `holdfast inject RUN_DIR NODE FAULT`: injects one fault through the agent of a node; prints the moment in
/// Unix seconds.
void add_inject(CLI::App& app, int& exit_code);
/// `holdfast config show JOB.toml [--origin] [--json]`, `holdfast config keys`
void add_config(CLI::App& app, int& exit_code);
/// `holdfast completion bash|zsh|fish`: a function for the shell, which asks `holdfast complete`.
void add_completion(CLI::App& app, int& exit_code);
/// Prints the words that may stand behind these, for that function.
void print_candidates(const CLI::App& app, const std::vector<std::string>& words);
/// `holdfast data submit ...`: `data prepare` as jobs. `typed`: what stands behind "data submit". The exit
/// code; throws Error.
int submit_data(const std::vector<std::string>& typed);
// Verbs that holdfast-tool does, because they need libraries that `holdfast` must not link.
void add_ckpt(CLI::App& app, int& exit_code);
void add_data(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);

/// Runs `holdfast VERB ...`; the exit code. Throws Error, unknown verbs included.
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace holdfast::launcher
