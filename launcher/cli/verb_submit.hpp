#pragma once
#include <CLI/CLI.hpp>

namespace holdfast::launcher {

/// `holdfast submit JOB.toml [--dry-run] [--parsable] [-J NAME] [-- sbatch flags]`: plan, prepare the run
/// directory, submit the job to SLURM.
void add_submit(CLI::App& app, int& exit_code);

}  // namespace holdfast::launcher
