#pragma once
// A command that runs a Python program, taken apart.
#include <optional>
#include <string>
#include <vector>

namespace holdfast::config {

struct PythonCommand {
  std::vector<std::string> interpreter;  ///< and its options
  bool module = false;                   ///< `program` follows -m
  std::string program;                   ///< a script, or a module
  std::vector<std::string> arguments;    ///< its own
};
/// Nothing: the command begins with another program, or has options whose meaning is not known here.
std::optional<PythonCommand> python_command(const std::vector<std::string>& command);

}  // namespace holdfast::config
