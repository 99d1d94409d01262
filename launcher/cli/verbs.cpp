#include "launcher/cli/verbs.hpp"

#include <algorithm>
#include <cctype>
#include <iostream>

#include "src/base/error.hpp"

namespace holdfast::launcher {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"plan", add_plan},     {"submit", add_submit},     {"run", add_run},       {"status", add_status},
      {"events", add_events}, {"ctl", add_ctl},           {"doctor", add_doctor}, {"init", add_init},
      {"drill", add_drill},   {"inject", add_inject},     {"config", add_config}, {"ckpt", add_ckpt},
      {"data", add_data},     {"generate", add_generate}, {"eval", add_eval},     {"agent", add_agent},
  };
  return table;
}

namespace {

void refuse_unknown_verb(const std::string& typed) {
  std::vector<std::string> names;
  for (const auto& verb : verbs()) names.push_back(verb.name);
  if (std::find(names.begin(), names.end(), typed) != names.end()) return;
  const auto nearest = nearest_name(typed, names);
  throw Error(
      Exit::usage, "there is no verb '" + typed + "'", "",
      nearest.empty() ? "'holdfast --help' lists the verbs" : "Did you mean 'holdfast " + nearest + "'?");
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  int exit_code = 0;
  CLI::App app("Launches and runs LLM training on SLURM clusters, and keeps it running when hardware fails.",
               "holdfast");
  app.set_version_flag("--version", "holdfast " HOLDFAST_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print help");
  for (const auto& verb : verbs()) verb.add(app, exit_code);
  for (auto* verb : app.get_subcommands({}))
    if (!verb->get_group().empty())
      verb->group("Verbs");  // an empty group hides verbs that only programs call
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.footer(
      "'holdfast VERB --help' says more. Exit codes: 0 done, 1 failed, 2 usage or settings, 3 plan "
      "impossible,\n"
      "4 unhealthy, 5 out of spares, 75 try again later, 93 do not try again, 128+n signal n.");

  if (arguments.empty()) {
    std::cerr << app.help();
    return static_cast<int>(Exit::usage);
  }
  if (!arguments.front().starts_with('-')) refuse_unknown_verb(arguments.front());
  // The parser would treat "submit" as the verb of that name, and "--" as its own.
  if (arguments.size() > 1 && arguments[0] == "data" && arguments[1] == "submit")
    return submit_data({arguments.begin() + 2, arguments.end()});
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::string what = e.what();  // it is a sentence
    if (!what.empty())
      what.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(what.front())));
    throw Error(Exit::usage, what, "",
                "'holdfast " + (arguments.front().starts_with('-') ? "" : arguments.front() + " ") +
                    "--help' says more");
  }
  if (app.get_subcommands().empty())
    throw Error(Exit::usage, "no verb was given", "", "'holdfast --help' lists the verbs");
  return exit_code;
}

}  // namespace holdfast::launcher
