#pragma once
// Options of every verb that reads a job file: the file, --set, and SLURM's spelling of the most common
// settings.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/config/load.hpp"

namespace holdfast::launcher {

struct JobOptions {
  std::string file;
  std::vector<std::string> sets;

  void add_to(CLI::App& verb);
  bool any_set() const;  ///< anything besides the file
  /// The settings; each flag counts like a --set given last. Throws Error (usage).
  config::Loaded load() const;

 private:
  std::vector<std::string> all_sets() const;

  std::vector<std::string> values_;  ///< of the flags; empty: not given
};

}  // namespace holdfast::launcher
