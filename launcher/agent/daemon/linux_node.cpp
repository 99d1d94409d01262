#include "launcher/agent/daemon/linux_node.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/agent/daemon/agent_port.hpp"
#include "launcher/agent/daemon/guardian.hpp"
#include "launcher/agent/daemon/inject.hpp"
#include "launcher/agent/ranks/flights.hpp"
#include "launcher/agent/ranks/programs.hpp"
#include "launcher/agent/ranks/stacks.hpp"
#include "launcher/pmix/pmix_program.hpp"
#include "launcher/supervise/agent_ports.hpp"
#include "src/base/log.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {

LinuxNode::LinuxNode(control::RealLoop& loop, RunDir run, Scratch scratch, std::filesystem::path local_level,
                     pid_t guardian, const config::RunConfig& config, const config::ClusterFacts& cluster,
                     const Roster& roster, const control::Key& secret)
    : loop_(loop),
      run_(std::move(run)),
      scratch_(std::move(scratch)),
      node_(scratch_.node),
      guardian_(guardian),
      local_level_(std::move(local_level)),
      children_(loop),
      checker_(loop, run_, cluster, config.rank, roster.ranks_per_node),
      outside_(loop, run_, node_) {
  if (!config::promises_of(config.rank).client_buffers || local_level_.empty()) return;
  try {
    const Roster::Node& here = roster.nodes.at(as_size(roster.node_called(node_)));
    mover_ = std::make_unique<Mover>(loop, buffers_folder(local_level_, node_), secret,
                                     mover_ports_to_try(here.port, here.ports, taken_ports()));
  } catch (const std::exception& error) {
    log::warn("programs have no snapshot buffers on this node: {}", error.what());
  }
}

pid_t LinuxNode::start(Command command, ChildHooks hooks) {
  auto& program = command.argv.front();
  auto will_be = command.environment ? process_said_by(*command.environment) : std::nullopt;
  if (will_be) will_be->name = program;
  if (program == "holdfast-train" || program == pmix_program) program = find_program(program).string();
  const pid_t pid = children_.start(command, std::move(hooks));
  std::erase_if(beginning_, [this](const auto& one) { return !children_.begins(one.first); });
  if (!will_be) return pid;
  will_be->pid = pid;
  beginning_[pid] = *will_be;
  return pid;
}

bool LinuxNode::is_guardians(pid_t pid) const { return guardian_ > 0 && parent_of(pid) == guardian_; }

bool LinuxNode::signal(pid_t pid, int signal) { return ::kill(pid, signal) == 0; }

std::vector<RunProcess> LinuxNode::processes(bool orphans) const {
  auto found = processes_of(run_, node_, orphans ? guardian_ : 0);
  for (const auto& [pid, process] : beginning_)
    if (children_.begins(pid) && std::ranges::none_of(found, [&](const auto& p) { return p.pid == pid; }))
      found.push_back(process);
  return found;
}

control::Loop::Handle LinuxNode::stacks(pid_t pid, const std::filesystem::path& log,
                                        std::function<void(std::string)> done) {
  return dump_stacks(loop_, pid, log, std::move(done));
}

control::Loop::Handle LinuxNode::why_left(std::vector<RunProcess> left,
                                          std::function<void(std::string)> done) {
  return look_why_left(loop_, std::move(left), std::move(done));
}

void LinuxNode::remove_flight_records(int attempt) {
  launcher::remove_flight_records(scratch_.folder, attempt);
}

int LinuxNode::free_port(int first) const { return find_free_port(first); }

void LinuxNode::replace_agent() { ::kill(::getpid(), SIGKILL); }

void LinuxNode::tell_guardian(bool over) { launcher::tell_guardian(guardian_, over); }

void LinuxNode::inject(const control::Inject& fault) { inject_at_node(fault, *this, local_level_); }

}  // namespace holdfast::launcher
