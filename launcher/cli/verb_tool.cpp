#include <unistd.h>

#include <cerrno>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/cli/verbs.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

/// Becomes `holdfast-tool VERB ARGUMENT...`; every argument arrives as it was typed.
[[noreturn]] void become_tool(const std::string& verb, const std::vector<std::string>& arguments) {
  const auto program = find_program("holdfast-tool");
  std::vector<std::string> words = {program.string(), verb};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw system_error("cannot start " + program.string(), errno);
}

void add_tool_verb(CLI::App& app, const std::string& name, const std::string& help) {
  auto* verb = app.add_subcommand(name, help);
  verb->prefix_command()->set_help_flag();  // the tool answers --help too
  verb->callback([verb, name] { become_tool(name, verb->remaining()); });
}

}  // namespace

void add_ckpt(CLI::App& app, int&) {
  add_tool_verb(app, "ckpt", "Show, verify and convert checkpoints, and choose which are kept");
}
void add_data(CLI::App& app, int&) { add_tool_verb(app, "data", "Make token files from text"); }
void add_generate(CLI::App& app, int&) {
  add_tool_verb(app, "generate", "Generate text with a model: continue texts, or answer");
}
void add_eval(CLI::App& app, int&) {
  add_tool_verb(app, "eval", "Loss and perplexity of a model on a token file");
}

}  // namespace holdfast::launcher
