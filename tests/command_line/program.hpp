#pragma once
// A program with verbs of all kinds, for tests.
#include <CLI/CLI.hpp>

namespace holdfast::test {

struct Program {
  CLI::App app{"Does things. And others", "holdfast"};
  std::string file, key, run, node;
  bool json = false;

  Program() {
    app.set_help_flag("-h,--help", "Print help");
    auto* submit = app.add_subcommand("submit", "Submit a job");
    submit->add_option("job", file, "Job file")->required()->type_name("JOB.toml");
    submit->add_option("--set", key, "A setting")->type_name("KEY=VALUE");
    submit->add_flag("--json,-j", json, "Print JSON");
    auto* ctl = app.add_subcommand("ctl", "Give orders");
    ctl->add_option("RUN", run, "The run")->required();
    ctl->require_subcommand(1);
    ctl->add_subcommand("save", "Save");
    ctl->add_subcommand("stop", "Stop")->add_option("NODE", node, "A node");
    app.add_subcommand("tool", "Is another program")->prefix_command();
    app.add_subcommand("hidden", "Not for users")->group("");
  }
};

}  // namespace holdfast::test
