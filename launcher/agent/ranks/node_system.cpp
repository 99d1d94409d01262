#include "launcher/agent/ranks/node_system.hpp"

#include "launcher/pmix/pmix_program.hpp"

namespace holdfast::launcher {

std::vector<RunProcess> kill_older(NodeSystem& node, int attempt, int signal, int to_pmix, bool orphans) {
  auto found = node.processes(orphans);
  std::erase_if(found, [&](const RunProcess& p) { return p.attempt >= attempt; });
  for (const auto& p : found) node.signal(p.pid, p.name == pmix_program ? to_pmix : signal);
  return found;
}

}  // namespace holdfast::launcher
