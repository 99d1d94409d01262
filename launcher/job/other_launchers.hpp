#pragma once
// A command that is itself a launcher of ranks (torchrun, accelerate launch, deepspeed), or that leaves the
// job (srun, mpirun). Under Holdfast every rank would start a world of its own. So the first become what
// their ranks run, and the others are refused. Pure but for what it asks Outside.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/config/load.hpp"

namespace holdfast::launcher {

/// What a command depends on beside its words.
struct Outside {
  /// The text of a file, or nothing.
  std::function<std::optional<std::string>(const std::string& path)> read;
  /// Where a program of this name is, by PATH; "": nowhere.
  std::function<std::string(const std::string& program)> find;
  std::function<std::string(const char* variable)> environment;  ///< "" where it is not set
};
Outside this_machine();

/// What a launcher's command line says.
struct LauncherCommand {
  std::string launcher;                  ///< "torchrun", "accelerate launch", ...
  std::vector<std::string> command;      ///< that each rank runs
  std::string shown;                     ///< the same, for people
  std::vector<std::string> environment;  ///< "NAME=value" that the launcher would set for each
  std::optional<int> nodes, min_nodes;
  std::optional<int> per_node;       ///< ranks; 0: one for each GPU
  std::optional<int> total;          ///< ranks of all nodes, instead
  bool per_node_by_default = false;  ///< the command line does not say it
  std::vector<std::pair<std::string, std::string>>
      dropped;  ///< options that Holdfast makes needless, and why
};
/// Nothing: the command is no launcher. Throws Error (usage) for one that cannot be taken over, and for
/// options that cannot be kept.
std::optional<LauncherCommand> launcher_in(const std::vector<std::string>& words, const Outside& outside);

/// The launcher that a shell script starts, as far as its words show it; "": none.
std::string launcher_in_script(const std::string& text);

/// Puts what the ranks run in the place of a launcher. Returns what people are to be told; empty: the command
/// is no launcher. Throws Error (usage) as launcher_in(), and where it contradicts the settings.
std::vector<std::string> take_launcher(config::Loaded& loaded, const Outside& outside);

}  // namespace holdfast::launcher
