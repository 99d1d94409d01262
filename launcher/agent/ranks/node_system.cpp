#include "launcher/agent/ranks/node_system.hpp"

#include "launcher/pmix/pmix_program.hpp"

namespace holdfast::launcher {

int kill_older(NodeSystem& node, int attempt, int signal, int to_pmix, bool orphans) {
  int found = 0;
  for (const auto& p : node.processes(orphans)) {
    if (p.attempt >= attempt) continue;
    ++found;
    node.signal(p.pid, p.name == pmix_program ? to_pmix : signal);
  }
  return found;
}

}  // namespace holdfast::launcher
