#include "launcher/agent/ranks/remote_start.hpp"

#include <signal.h>
#include <unistd.h>

#include "launcher/agent/ranks/scratch.hpp"
#include "launcher/supervise/roster.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/control/channel.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

using namespace control;

int remote_start(const std::string& host, const std::vector<std::string>& command) {
  const auto dir = env::get("HOLDFAST_RUN_DIR");
  if (!dir)
    throw Error(Exit::usage, "`holdfast spawn` is called by Holdfast's own mpirun",
                "HOLDFAST_RUN_DIR is not set");
  const RunDir run{*dir}, settings = settings_of(scratch_of(run, env::get_or("HOLDFAST_NODE", "")), run);
  const Roster roster = read_roster(settings);
  const int node = roster.node_called(host);
  if (node < 0) throw Error(Exit::usage, "cannot start anything on " + host, "it is not a node of this run");
  const auto& target = roster.nodes[node];
  std::string line;  // as a remote shell would: the words joined by spaces
  for (const auto& word : command) line += (line.empty() ? "" : " ") + word;

  // If this process ended, mpirun would take that for the end of its daemon, and end the ranks, which may be
  // saving. Where SLURM signals every process of a step, this one must ignore it.
  ::signal(SIGTERM, SIG_IGN);
  Loop loop;
  int status = static_cast<int>(Exit::transient);
  ChannelPtr channel;
  channel = dial(loop, TcpAddress{target.address, target.port}, read_secret(settings.secret()), Millis(10000),
                 {[&] {
                    const int term = static_cast<int>(env::get_integer("HOLDFAST_TERM").value_or(0));
                    const int attempt = static_cast<int>(env::get_integer("HOLDFAST_ATTEMPT").value_or(0));
                    channel->send(encode(Hello{Hello::Role::spawner, host, term, attempt, -1, ::getpid()}));
                    channel->send(encode(Exec{line}));
                  },
                  [&](std::string_view text) {
                    std::string why;
                    const auto exited = decode<Exited>(text, why);
                    if (!exited) return;
                    status = exited->status;
                    loop.stop();
                  },
                  [&](const std::string& why) {
                    log::error("the agent on {} cannot be reached: {}", host, why);
                    loop.stop();
                  }});
  loop.run();
  return status;
}

}  // namespace holdfast::launcher
