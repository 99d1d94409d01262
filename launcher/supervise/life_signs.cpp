#include "launcher/supervise/life_signs.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::launcher {

bool is_lost(const LifeSigns& signs, double now, double patience_s) {
  const double agent_s = now - signs.agent, ranks_s = now - signs.ranks, kernel_s = now - signs.kernel;
  if (agent_s <= patience_s) return false;
  if (agent_s > unattended_node_s) return true;
  const bool ranks_live = ranks_s <= patience_s;
  const bool kernel_lives = kernel_s <= patience_s && std::min(agent_s, ranks_s) <= stuck_node_s;
  return !ranks_live && !kernel_lives;
}

std::string says_of(const LifeSigns& signs, double now) {
  std::string out;
  if (signs.ranks > signs.agent)
    out += fmt::format("; its ranks took part in a step {:.1f} s ago", now - signs.ranks);
  if (signs.kernel > signs.agent)
    out += fmt::format("; its kernel has answered {:.1f} s ago", now - signs.kernel);
  return out;
}

}  // namespace holdfast::launcher
