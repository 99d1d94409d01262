#include "launcher/agent/daemon/serve.hpp"

#include <signal.h>

#include "launcher/agent/daemon/agent.hpp"
#include "launcher/agent/daemon/guardian.hpp"
#include "launcher/agent/daemon/linux_node.hpp"
#include "slurm/local_cluster.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/config/load.hpp"
#include "src/control/private_place.hpp"

namespace holdfast::launcher {
namespace {

AgentInput read_input(const RunDir& run, const Scratch& scratch) {
  const std::string& node = scratch.node;
  AgentInput in{run, scratch, {}, {}, {}, {}, {}, {}};
  const RunDir settings = settings_of(in.scratch, run);
  in.roster = read_roster(settings);
  if (in.roster.node_called(node) < 0)
    throw Error(Exit::usage, "this node is not part of the run", node + " is not in " + run.nodes().string());
  in.config = config::load(settings.config()).config;
  in.cluster = config::load_cluster(settings.cluster().string());
  if (in.config.supervise.ledger.empty()) in.config.supervise.ledger = in.cluster.ledger;
  in.secret = control::read_secret(settings.secret());
  if (const auto& local = in.config.checkpoint.local; local != "none")
    in.local_level = control::make_private(control::local_level_place(run, local), in.secret);
  in.signs = sign_places(run, node, in.config, in.cluster);
  return in;
}

}  // namespace

int serve(const RunDir& run, const Scratch& scratch, pid_t guardian) {
  const AgentInput in = read_input(run, scratch);
  control::RealLoop loop;
  LinuxNode system(loop, run, scratch, in.local_level, guardian, in.config, in.cluster, in.roster, in.secret);
  int exit_code = 0;
  // Outlives the agent: SLURM signals a job that is queued again, and the agent's destructor may still have
  // to tell SLURM which nodes that job must not get.
  control::Loop::Handle signals;
  Agent agent(loop, system, slurm::cluster_around(), in, [&](int code) {
    exit_code = code;
    loop.stop();
  });
  sweep_node(in.scratch);
  signals =
      loop.on_signals({SIGTERM, SIGINT, slurms_sigterm()}, [&agent](int signal) { agent.signalled(signal); });
  log::info("serving {} as node {} of {}", run.path.string(), in.roster.node_called(scratch.node),
            in.roster.nodes.size());
  loop.run();
  return exit_code;
}

}  // namespace holdfast::launcher
