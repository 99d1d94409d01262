#include <pwd.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "launcher/cli/avail_table.hpp"
#include "launcher/cli/verbs.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {
namespace {

constexpr std::chrono::seconds each_question{5};

std::string user_name() {
  const passwd* user = ::getpwuid(::geteuid());
  return user ? user->pw_name : std::to_string(::geteuid());
}

}  // namespace

void add_avail(CLI::App& app, int& exit_code) {
  struct AvailOptions {
    std::string partition;
    bool json = false;
  };
  auto* verb = app.add_subcommand(
      "avail", "Show what a job could get now: idle nodes by partition and by switch, and your limits");
  const auto options = std::make_shared<AvailOptions>();
  verb->add_option("-p,--partition", options->partition, "Only this one")->type_name("PARTITION");
  verb->add_flag("--json", options->json, "Print JSON");
  verb->callback([options, &exit_code] {
    const auto now = slurm::availability(user_name(), each_question);
    if (options->json)
      std::cout << json_text(avail_json(now, options->partition), 2) << '\n';
    else
      std::cout << avail_text(now, options->partition);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher
