#pragma once
// What every verb that reads a job file has in common: the file, --set, and SLURM's spelling for the
// commonest settings.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/config/load.hpp"

namespace holdfast::launcher {

struct JobOptions {
  std::string file;
  std::vector<std::string> sets;
  std::string nodes, spares, resume, partition, time;  ///< empty: not given

  void add_to(CLI::App& verb);
  bool any_set() const;  ///< anything besides the file
  /// The settings; each of the flags counts like a --set typed last. Throws Error (usage).
  config::Loaded load() const;

 private:
  std::vector<std::string> all_sets() const;
};

}  // namespace holdfast::launcher
