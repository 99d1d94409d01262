#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <memory>

#include "launcher/cli/tool.hpp"
#include "launcher/cli/verbs.hpp"
#include "slurm/site.hpp"
#include "slurm/tools.hpp"
#include "src/base/error.hpp"
#include "src/command_line/complete.hpp"
#include "src/command_line/man_page.hpp"
#include "src/config/bind.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

using command_line::Candidates;
using command_line::Paths;

constexpr std::chrono::milliseconds patience{1000};  // a user waits

Candidates settings() {
  Candidates out;
  for (const auto& setting : config::run_settings())
    out.words.push_back({setting.name() + "=", setting.help});
  return out;
}

/// Of configs/KIND, without their ending; and any file.
Candidates named(const std::string& kind) {
  Candidates out{{}, Paths::files};
  for (const auto& name : config::names_of_configs(kind)) out.words.push_back({name, ""});
  return out;
}

/// SLURM's partitions, or their nodes.
Candidates from_slurm(bool nodes) {
  Candidates out;
  try {
    slurm::find_tools();
    for (const auto& partition : slurm::partitions(patience)) {
      if (!nodes) out.words.push_back({partition.name, fmt::format("{} nodes", partition.nodes.size())});
      if (nodes)
        for (const auto& node : partition.nodes) out.words.push_back({node, partition.name});
    }
  } catch (const Error&) {  // no SLURM here: there is nothing to offer
  }
  return out;
}

Candidates values_of(const std::string& type) {
  if (type == "KEY=VALUE") return settings();
  if (type == "JOB.toml") return named("jobs");
  if (type == "DRILL.toml") return named("drills");
  if (type == "CLUSTER") return named("clusters");
  if (type == "PARTITION") return from_slurm(false);
  if (type == "HOSTLIST" || type == "NODE") return from_slurm(true);
  if (type == "SHELL") return {{{"bash", ""}, {"zsh", ""}, {"fish", ""}}};
  if (type == "FILE" || type == "PATH" || type == "IMAGE") return {{}, Paths::files};
  if (type.starts_with("RUN") || type == "DIR" || type == "FOLDER") return {{}, Paths::folders};
  return {};
}

}  // namespace

void print_candidates(const CLI::App& app, const std::vector<std::string>& typed) {
  // Behind "--", which keeps the shell's words apart from options of this verb.
  std::vector<std::string> words(typed.begin() + (typed.empty() || typed.front() != "--" ? 0 : 1),
                                 typed.end());
  if (words.size() > 1 && is_tool_verb(app, words.front())) {
    words.insert(words.begin(), {"complete", "--"});
    become_tool(words);
  }
  std::cout << lines_of(complete(app, words, values_of));
}

void add_completion(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("completion",
                                  "Print what a shell needs to complete verbs, options, settings and nodes");
  const auto shell = std::make_shared<std::string>();
  verb->add_option("SHELL", *shell, "bash, zsh or fish")->required()->type_name("SHELL");
  verb->callback([shell, &exit_code] {
    const std::string script = command_line::completion_script(*shell);
    if (script.empty())
      throw Error(Exit::usage, "there is no completion for the shell '" + *shell + "'", "",
                  "bash, zsh or fish?");
    std::cout << script;
    exit_code = 0;
  });
  app.add_subcommand("man", "Print the manual page")->group("")->callback([&app] {
    std::cout << command_line::man_page(app, HOLDFAST_VERSION) << std::flush;
    become_tool({"man"});
  });
}

}  // namespace holdfast::launcher
