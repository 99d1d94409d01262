#include "launcher/agent/daemon/inject.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>

#include "launcher/agent/ranks/scratch.hpp"

namespace holdfast::launcher {

namespace {

constexpr std::array at_node = {"drop_local", "kill_agent", "freeze_agent", "kill_node"};
constexpr int gpu_off_the_bus = 79;

/// The guardian last: with it this process ends too.
void kill_node(NodeSystem& node) {
  kill_older(node, INT32_MAX, SIGKILL, SIGKILL, false);
  ::kill(::getppid(), SIGKILL);
  ::kill(::getpid(), SIGKILL);
}

}  // namespace

std::optional<AgentFault> agent_fault_called(const std::string& fault) {
  if (fault == "kill_rank") return AgentFault{true, SIGKILL, {}};
  if (fault == "term_rank") return AgentFault{true, SIGTERM, {}};
  if (fault == "stop_rank") return AgentFault{true, SIGSTOP, {}};
  if (fault == "oom_rank")
    return AgentFault{true, SIGKILL,
                      control::Sign{"oom_kill", -1, 1, 0, "drill: the memory of the job is used up"}};
  if (fault == "xid_79")
    return AgentFault{true, SIGKILL,
                      control::Sign{"xid", -1, gpu_off_the_bus, 0,
                                    "drill: NVRM: Xid (PCI:0000:00:00): 79, GPU has fallen off the bus."}};
  for (const char* name : at_node)
    if (fault == name) return AgentFault{};
  return std::nullopt;
}

void inject_at_node(const control::Inject& fault, NodeSystem& node,
                    const std::filesystem::path& local_level) {
  if (fault.fault == "drop_local") return remove_local_level(local_level);
  if (fault.fault == "kill_node") return kill_node(node);
  if (fault.fault == "kill_agent") ::kill(::getpid(), SIGKILL);
  if (fault.fault == "freeze_agent") {
    // Another process must wake this one.
    const std::string wake = fmt::format("sleep {:.3f}; kill -CONT {}", fault.seconds, ::getpid());
    Command command;
    command.argv = {"/bin/sh", "-c", wake};
    command.new_session = true;
    node.start(command, {[](int) {}});
    ::kill(::getpid(), SIGSTOP);
  }
}

}  // namespace holdfast::launcher
