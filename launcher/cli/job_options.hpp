#pragma once
// Options of every verb that reads a job file: the file, --set, and SLURM's spelling of the most common
// settings. A program of one's own (--command) needs no job file.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/config/load.hpp"

namespace holdfast::launcher {

struct JobOptions {
  std::string file;
  std::vector<std::string> sets;

  void add_to(CLI::App& verb);
  /// `words` stand after "--", for SLURM; where there is no job file, the parser took the first of them for
  /// one.
  std::vector<std::string> flags_of(std::vector<std::string> words);
  bool any_set() const;  ///< anything besides the file
  /// The settings; each flag counts like a --set given last. The name of a run without a job file is that of
  /// its program, with a number where another run has that name. A command that is a launcher becomes what
  /// its ranks run (other_launchers.hpp), and stderr says so. `nodes_here`: of the allocation around, on
  /// which a program without a job file runs but on the spares; 0: there is none. Throws Error (usage).
  config::Loaded load(int nodes_here = 0) const;

 private:
  std::vector<std::string> all_sets() const;
  template <class Load>
  config::Loaded with_flags_named(Load load) const;

  std::vector<std::string> values_;  ///< of the flags; empty: not given
};

}  // namespace holdfast::launcher
