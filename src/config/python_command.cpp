#include "src/config/python_command.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace holdfast::config {
namespace {

bool is_python(const std::string& program) {
  const std::string name = std::filesystem::path(program).filename().string();
  return name.starts_with("python") &&
         name.find_first_not_of("0123456789.", std::string_view("python").size()) == std::string::npos;
}

}  // namespace

std::optional<PythonCommand> python_command(const std::vector<std::string>& command) {
  if (command.empty() || !is_python(command.front())) return std::nullopt;
  PythonCommand out;
  out.interpreter = {command.front()};
  for (auto at = command.begin() + 1; at != command.end(); ++at) {
    const bool takes_value = *at == "-W" || *at == "-X";
    if (!takes_value && (at->starts_with("-") && at->find_first_not_of("uBOsEIPq", 1) == std::string::npos &&
                         at->size() > 1)) {
      out.interpreter.push_back(*at);
    } else if (takes_value && at + 1 != command.end()) {
      out.interpreter.insert(out.interpreter.end(), {*at, *(at + 1)});
      ++at;
    } else {
      out.module = *at == "-m";
      if (out.module && ++at == command.end()) return std::nullopt;
      if (!out.module && at->starts_with("-")) return std::nullopt;
      out.program = *at;
      out.arguments.assign(at + 1, command.end());
      return out;
    }
  }
  return std::nullopt;
}

}  // namespace holdfast::config
