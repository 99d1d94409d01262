#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "launcher/cli/verbs.hpp"
#include "launcher/health/cluster_draft.hpp"
#include "slurm/job_env.hpp"
#include "slurm/site.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
constexpr Millis tool_limit{10000};

struct InitOptions {
  std::string output, partition;
  bool force = false;
};

/// A node other than this one, to find the route to it.
std::string some_node(const slurm::SiteFacts& site, const std::string& here) {
  for (const auto& node : site.nodes)
    if (node.name != here) return node.name;
  return {};
}

/// Writes the file only if the other verbs can read it.
void write_checked(const fs::path& file, const std::string& text) {
  const fs::path aside = file.string() + ".new.toml";
  files::replace_atomically(aside, text, 0644);
  try {
    (void)config::load_cluster(fs::absolute(aside).string());
  } catch (const Error&) {
    fs::remove(aside);
    throw;
  }
  fs::rename(aside, file);
}

void write_cluster_file(const InitOptions& options) {
  const auto site = slurm::probe_site(tool_limit);
  const std::string here = slurm::inside_a_job() ? slurm::job_env().node : "";
  const auto draft =
      draft_cluster(site, probe_local_site({}, here, some_node(site, here)), options.partition);
  if (options.output == "-") {
    std::cout << draft.text;
    return;
  }
  const fs::path file = options.output.empty() ? fs::path(draft.name + ".toml") : fs::path(options.output);
  if (files::exists_or_fail(file) && !options.force)
    throw Error(Exit::usage, file.string() + " exists already", "",
                "Write elsewhere with --output, or overwrite it with --force?");
  write_checked(file, draft.text);
  std::cout << file.string() << "\n";
  for (const auto& sentence : draft.to_check) std::cerr << "holdfast: check this: " << sentence << "\n";
  std::cerr << "holdfast: name it in a job file (cluster.file = \"" << fs::absolute(file).string()
            << "\") and run `holdfast plan`\n";
}

}  // namespace

void add_init(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("init", "Write a cluster file from what SLURM and this node report");
  const auto options = std::make_shared<InitOptions>();
  verb->add_option("-o,--output", options->output,
                   "File to write (default: the cluster's name); - for stdout")
      ->type_name("FILE");
  verb->add_option("-p,--partition", options->partition,
                   "Partition of the nodes (default: SLURM's default partition)")
      ->type_name("PARTITION");
  verb->add_flag("--force", options->force, "Overwrite an existing file");
  verb->footer(
      "Run in a step on a compute node (in an allocation), it also finds GPUs and the NICs nearest to them.");
  verb->callback([options, &exit_code] {
    write_cluster_file(*options);
    exit_code = 0;
  });
}

}  // namespace holdfast::launcher
