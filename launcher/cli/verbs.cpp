#include "launcher/cli/verbs.hpp"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/cli/tool.hpp"
#include "src/base/error.hpp"
#include "src/command_line/complete.hpp"
#include "src/command_line/help.hpp"

namespace holdfast::launcher {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"plan",
       add_plan,
       {"holdfast plan quickstart", "holdfast plan job.toml -N 32 --spares 2",
        "holdfast plan job.toml --json | jq .memory_bytes"}},
      {"submit",
       add_submit,
       {"holdfast submit job.toml --dry-run", "holdfast submit job.toml -p gpu -A my_account -t 2-00:00:00",
        "holdfast submit job.toml -N 32 --spares 2 --set train.steps=50000",
        "holdfast submit --command 'python train.py --lr 1e-4' -N 4 --spares 1"}},
      {"run",
       add_run,
       {"salloc -N 5 --exclusive holdfast run job.toml -N 4 --spares 1",
        "salloc -N 5 --exclusive holdfast run --spares 1 -- python train.py --lr 1e-4"}},
      {"avail", add_avail, {"holdfast avail", "holdfast avail -p gpu --json | jq .partitions[0].idle"}},
      {"ls", add_ls, {"holdfast ls", "holdfast ls /shared/runs"}},
      {"status",
       add_status,
       {"holdfast status 4711", "holdfast status /shared/runs/my_run --json | jq .last_step.step"}},
      {"watch", add_watch, {"holdfast watch 4711", "ssh -t login holdfast watch /shared/runs/my_run"}},
      {"report",
       add_report,
       {"holdfast report 4711 -o report.html", "holdfast report /shared/runs/my_run --markdown"}},
      {"events", add_events, {"holdfast events 4711 | jq 'select(.event == \"attempt_ended\")'"}},
      {"logs",
       add_logs,
       {"holdfast logs 4711 -f", "holdfast logs /shared/runs/my_run --rank 17 --attempt 2 -n 50",
        "holdfast logs 4711 --node dgx017"}},
      {"metrics",
       add_metrics,
       {"holdfast metrics /shared/runs/my_run --tensorboard tb/my_run",
        "holdfast metrics 4711 -f --openmetrics /var/lib/node_exporter/4711.prom"}},
      {"ctl",
       add_ctl,
       {"holdfast ctl /shared/runs/my_run save", "holdfast ctl 4711 evict dgx017", "holdfast ctl 4711 stop"}},
      {"doctor", add_doctor, {"holdfast doctor --fast", "salloc -N 4 --exclusive holdfast doctor --nodes"}},
      {"init", add_init, {"holdfast init -p gpu -o cluster.toml"}},
      {"drill", add_drill, {"holdfast drill full job.toml"}},
      {"inject", add_inject},
      {"config", add_config, {"holdfast config show job.toml --origin", "holdfast config keys checkpoint"}},
      {"ckpt", add_ckpt},
      {"data", add_data},
      {"generate", add_generate},
      {"eval", add_eval},
      {"agent", add_agent},
      {"completion",
       add_completion,
       {"source <(holdfast completion bash)",
        "holdfast completion fish >~/.config/fish/completions/holdfast.fish"}},
  };
  return table;
}

/// `run ... -- PROGRAM ARGUMENT...`, where the parser would take PROGRAM for a job file.
std::vector<std::string> with_command(std::vector<std::string> arguments) {
  const auto dashes = std::ranges::find(arguments, "--");
  if (dashes == arguments.end() || arguments.front() != "run") return arguments;
  const nlohmann::json words(std::vector<std::string>(dashes + 1, arguments.end()));
  arguments.erase(dashes, arguments.end());
  arguments.push_back("--command=" + words.dump());
  return arguments;
}

int run_command_line(const std::vector<std::string>& given) {
  const auto arguments = with_command(given);
  int exit_code = 0;
  CLI::App app("Launches and runs LLM training on SLURM clusters, and keeps it running when hardware fails.",
               "holdfast");
  app.set_version_flag("--version", "holdfast " HOLDFAST_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print help");
  app.formatter(command_line::help_formatter(command_line::help_width()));
  for (const auto& verb : verbs()) {
    verb.add(app, exit_code);
    command_line::add_examples(*app.get_subcommand(verb.name), verb.examples);
  }
  for (auto* verb : app.get_subcommands({}))
    if (!verb->get_group().empty())
      verb->group("Verbs");  // an empty group hides verbs that only programs call
  app.footer(
      "'holdfast VERB --help' says more. Exit codes: 0 done, 1 failed, 2 usage or settings, 3 plan "
      "impossible, "
      "4 unhealthy, 5 out of spares, 75 try again later, 93 do not try again, 128+n signal n.");

  if (arguments.empty()) {
    std::cerr << app.help();
    return static_cast<int>(Exit::usage);
  }
  if (arguments.front() == "complete") {
    print_candidates(app, {arguments.begin() + 1, arguments.end()});
    return 0;
  }
  command_line::refuse_unknown_verb(app, arguments);
  // The parser would treat "submit" and "ls" as the verbs of these names, and "--" as its own.
  if (arguments.size() > 1 && arguments[0] == "data" && arguments[1] == "submit")
    return submit_data({arguments.begin() + 2, arguments.end()});
  if (is_tool_verb(app, arguments.front())) become_tool(arguments);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    throw command_line::usage_error(app, arguments, e);
  }
  if (app.get_subcommands().empty())
    throw Error(Exit::usage, "no verb was given", "", "'holdfast --help' lists the verbs");
  return exit_code;
}

}  // namespace holdfast::launcher
