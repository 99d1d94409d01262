#include <unistd.h>

#include <cerrno>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/cli/tool.hpp"
#include "launcher/cli/verbs.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
void become_tool(const std::vector<std::string>& words) {
  const std::string program = find_program("holdfast-tool").string();
  // Threads that spin at barriers are many times slower where other processes want the cores, too.
  if (constexpr const char* policy = "OMP_WAIT_POLICY"; !env::get(policy)) env::set(policy, "passive");
  std::vector<const char*> argv = {program.c_str()};
  for (const auto& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  ::execv(program.c_str(), const_cast<char**>(argv.data()));
  throw system_error("cannot start " + program, errno);
}

bool is_tool_verb(const CLI::App& app, const std::string& name) {
  return !app.get_subcommands(
                 [&](const CLI::App* verb) { return verb->get_name() == name && verb->get_prefix_command(); })
              .empty();
}

namespace {

void add_tool_verb(CLI::App& app, const std::string& name, const std::string& help) {
  app.add_subcommand(name, help)->prefix_command()->set_help_flag();  // the tool answers --help too
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
  add_tool_verb(app, "eval", "Measure the loss and perplexity of a model on a token file");
}

}  // namespace holdfast::launcher
