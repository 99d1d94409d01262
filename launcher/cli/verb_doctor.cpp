// One verb, four ways to run it:
//
// - without an option: examines this node and prints the findings;
// - --nodes: starts a step on each node of the allocation that runs the first way with --json, and reads the
//   reports from a shared folder;
// - --network: starts a step on each node that runs the fourth way, and leads the rounds in which pairs of
//   nodes measure their connection;
// - --peer FOLDER (hidden): takes part in those rounds; the folder has the secret and the leader's address.
//
// The exit code is the worst finding, as a monitoring plugin has it, or with --gate as Holdfast has it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/agent/ranks/programs.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/health/doctor.hpp"
#include "launcher/health/nodes.hpp"
#include "launcher/health/pair_rounds.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/load.hpp"
#include "src/control/secret.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
namespace fs = std::filesystem;

constexpr Millis step_limit{20000};  ///< for a step to start, beside the time of its doctor

struct DoctorOptions {
  bool fast = false, full = false, json = false, gate = false, nodes = false, network = false;
  std::string cluster, interface, peer;
  std::vector<std::string> paths, shared_files;
  double shm_gb = 0, seconds = 8;
  int rounds = 0;
};

/// Exit codes of monitoring plugins; with --gate those of Holdfast, for scripts that continue unless a node
/// is unfit, and for SLURM's Prolog.
int exit_code_of(Fitness fitness, bool gate) {
  if (gate) return static_cast<int>(fitness == Fitness::critical ? Exit::unhealthy : Exit::done);
  return static_cast<int>(fitness);
}
static_assert(static_cast<int>(Fitness::ok) == 0 && static_cast<int>(Fitness::warning) == 1 &&
              static_cast<int>(Fitness::critical) == 2 && static_cast<int>(Fitness::unknown) == 3);

std::string node_name() {
  try {
    if (slurm::inside_a_job())
      if (auto name = slurm::job_env().node; !name.empty()) return name;
  } catch (const Error&) {  // a prolog may have few of the variables
  }
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Millis limit_of(const DoctorOptions& options) {
  return Millis(static_cast<std::int64_t>(options.seconds * 1000));
}

Expected expected_of(const DoctorOptions& options) {
  Expected expected;
  if (!options.cluster.empty()) expected.cluster = config::load_cluster(options.cluster);
  for (const auto& path : options.paths) expected.paths.emplace_back(fs::absolute(path).lexically_normal());
  expected.shared_files.assign(options.shared_files.begin(), options.shared_files.end());
  expected.shm_bytes = static_cast<std::int64_t>(options.shm_gb * 1e9);
  expected.depth = options.fast ? Depth::fast : options.full ? Depth::full : Depth::normal;
  return expected;
}

int examine_here(const DoctorOptions& options) {
  const auto findings = examine({}, expected_of(options), limit_of(options));
  if (options.json)
    std::cout << json_text(report_json(node_name(), findings), 2) << "\n";
  else
    std::cout << report_text(findings);
  return exit_code_of(worst(findings), options.gate);
}

struct NodesToCheck {
  slurm::JobId job = 0;
  std::vector<std::string> nodes;
  std::string here;                 ///< address of this node for the others
  std::map<std::string, int> gpus;  ///< of each node
};

NodesToCheck nodes_of_this_job(slurm::Cluster& cluster) {
  const auto place = slurm::job_env();
  const auto job = cluster.job(place.job);
  if (!job || job->nodes.empty())
    throw Error(Exit::usage, fmt::format("job {} has no nodes", place.job), "SLURM reports none",
                "Has it ended?");
  NodesToCheck out{place.job, job->nodes, node_name(), cluster.gpus(place.job)};
  if (!place.node.empty()) out.here = cluster.nodes({place.node}).front().address;
  return out;
}

fs::path first_path(const DoctorOptions& options) {
  return fs::absolute(options.paths.empty() ? "." : options.paths.front()).lexically_normal();
}

/// The command for the same checks, to be started on every node.
std::vector<std::string> node_command(const DoctorOptions& options,
                                      const std::vector<fs::path>& shared_files) {
  std::vector<std::string> command = {this_program().string(), "doctor", "--json",
                                      fmt::format("--timeout={}", options.seconds)};
  if (options.fast) command.push_back("--fast");
  if (options.full) command.push_back("--full");
  if (!options.cluster.empty())
    command.push_back("--cluster=" + fs::absolute(config::find_config("clusters", options.cluster)).string());
  if (options.shm_gb > 0) command.push_back(fmt::format("--shm={}", options.shm_gb));
  for (const auto& path : options.paths)
    command.push_back("--path=" + fs::absolute(path).lexically_normal().string());
  for (const auto& file : shared_files) command.push_back("--shared-file=" + file.string());
  return command;
}

int examine_nodes(const DoctorOptions& options) {
  slurm::ClusterCli cluster;
  const auto allocation = nodes_of_this_job(cluster);
  std::vector<std::unique_ptr<SharedTempFolder>> places;
  std::vector<fs::path> shared_files;
  for (const auto& path : options.paths.empty() ? std::vector<std::string>{"."} : options.paths) {
    places.push_back(std::make_unique<SharedTempFolder>(path));
    shared_files.push_back(places.back()->path() / "shared-file");
    files::replace_atomically(shared_files.back(), allocation.here + "\n");
  }
  const fs::path folder = places.front()->path();
  Steps(cluster, allocation.job, allocation.nodes, allocation.gpus, node_command(options, shared_files),
        folder)
      .wait(limit_of(options) + step_limit);
  std::vector<NodeReport> reports;
  for (const auto& node : allocation.nodes) reports.push_back(read_report(node, folder / (node + ".out")));
  std::cout << (options.json ? json_text(nodes_json(reports), 2) + "\n" : nodes_text(reports));
  return exit_code_of(worst(all_findings(reports)), options.gate);
}

int examine_network(const DoctorOptions& options) {
  slurm::ClusterCli cluster;
  const auto allocation = nodes_of_this_job(cluster);
  const SharedTempFolder place(first_path(options));
  files::replace_atomically(place.path() / "secret", control::to_hex(control::random_key()) + "\n", 0600);
  std::vector<std::string> command = {this_program().string(), "doctor", "--peer=" + place.path().string()};
  if (!options.interface.empty()) command.push_back("--interface=" + options.interface);
  Steps steps(cluster, allocation.job, allocation.nodes, allocation.gpus, command, place.path());
  RoundsPlan plan;
  plan.rounds = options.rounds;
  const auto result = lead_rounds(place.path(), allocation.here, allocation.nodes, plan);
  if (options.json)
    std::cout << json_text(network_json(result), 2) << "\n";
  else
    std::cout << network_text(result) << report_text(network_findings(result));
  return exit_code_of(worst(network_findings(result)), options.gate);
}

int run_peer(const DoctorOptions& options) {
  const auto place = slurm::job_env();
  std::string address;
  if (!options.interface.empty()) {
    address = address_on(options.interface);
    if (address.empty())
      throw Error(Exit::usage, "there is no address on the interface " + options.interface,
                  "on " + place.node, "`ip -4 addr` lists them");
  } else {
    slurm::ClusterCli cluster;
    address = cluster.nodes({place.node}, slurm::default_limit).front().address;
  }
  return follow_rounds(options.peer, place.node, address) ? 0 : static_cast<int>(Exit::runtime);
}

int run_doctor(const DoctorOptions& options) {
  if (!options.peer.empty()) return run_peer(options);
  if ((options.network || options.nodes) && !slurm::inside_a_job())
    throw Error(Exit::usage, fmt::format("--{} needs an allocation", options.network ? "network" : "nodes"),
                "this is no SLURM job",
                fmt::format("'salloc -N 4 --exclusive holdfast doctor --{}' is in one",
                            options.network ? "network" : "nodes"));
  if (options.network) return examine_network(options);
  return options.nodes ? examine_nodes(options) : examine_here(options);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand(
      "doctor",
      "Check whether this node, all nodes of an allocation or the network between them are fit to train");
  const auto options = std::make_shared<DoctorOptions>();
  auto* fast =
      verb->add_flag("--fast", options->fast, "Only checks that take milliseconds and disturb no job");
  verb->add_flag("--full", options->full, "Write more data when disks are timed")->excludes(fast);
  verb->add_option("--cluster", options->cluster,
                   "Cluster file to compare the node with, or a name in configs/clusters")
      ->type_name("CLUSTER");
  verb->add_option("--path", options->paths, "Folders that the job will use (default: /tmp)")
      ->type_name("DIR");
  verb->add_option("--shm", options->shm_gb, "GB that the ranks of a node will use in /dev/shm")
      ->type_name("GB")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--timeout", options->seconds, "Seconds after which a check is ended (default: 8)")
      ->type_name("S")
      ->check(CLI::PositiveNumber);
  auto* nodes = verb->add_flag("--nodes", options->nodes, "In an allocation: check every node of it");
  auto* network =
      verb->add_flag("--network", options->network,
                     "In an allocation: measure TCP between pairs of its nodes and name the bad one")
          ->excludes(nodes);
  verb->add_option("--rounds", options->rounds,
                   "Rounds of the network check (default: all pairs up to 16 nodes, else 6)")
      ->type_name("N")
      ->needs(network)
      ->check(CLI::PositiveNumber);
  verb->add_option("--interface", options->interface,
                   "Network interface to measure (default: SLURM's node address)")
      ->type_name("NAME");
  verb->add_flag("--gate", options->gate, "Exit with 4 when something is critical, else 0");
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--peer", options->peer)->group("");
  verb->add_option("--shared-file", options->shared_files)->group("");
  verb->footer(
      "The exit codes of this verb are those of monitoring plugins: 0 ok, 1 warning, 2 critical, 3 unknown.\n"
      "--gate is for scripts that only need to know whether to continue, and for SLURM's Prolog, whose "
      "failure drains the node. SLURM ignores the exit code of a HealthCheckProgram, which must drain the "
      "node itself (docs/manual/failures.md).\n"
      "--nodes and --network need a folder that every node sees: the first --path, else the current folder.");
  verb->callback([options, &exit_code] {
    try {
      exit_code = run_doctor(*options);
    } catch (const Error& error) {
      if (options->gate) throw;
      std::cerr << "holdfast: " << error.what() << "\n";
      exit_code = static_cast<int>(Fitness::unknown);
    }
  });
}

}  // namespace holdfast::launcher
