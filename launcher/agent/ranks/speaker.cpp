#include "launcher/agent/ranks/speaker.hpp"

namespace holdfast::launcher {
namespace {

constexpr int most_generations = 64;

bool is_ancestor(pid_t ancestor, pid_t of, const LookUp& facts) {
  for (int n = 0; n < most_generations && of > 1; ++n) {
    const auto process = facts(of);
    if (!process) return false;
    of = process->parent;
    if (of == ancestor) return true;
  }
  return false;
}

}  // namespace

Claim claim(const ProcessId& opener, const std::optional<ProcessId>& speaker, bool connected,
            const LookUp& facts) {
  if (!speaker || opener == *speaker) return Claim::speaks;
  if (opener.pid <= 0 || speaker->pid <= 0) return connected ? Claim::other : Claim::speaks;
  const auto present = facts(speaker->pid);
  if (!present || present->started != speaker->started) return Claim::speaks;
  if (is_ancestor(opener.pid, speaker->pid, facts)) return Claim::speaks;
  return is_ancestor(speaker->pid, opener.pid, facts) ? Claim::child : Claim::other;
}

}  // namespace holdfast::launcher
