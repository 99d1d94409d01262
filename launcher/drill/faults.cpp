#include "launcher/drill/faults.hpp"

#include <algorithm>
#include <array>

#include "src/base/as_size.hpp"

namespace holdfast::launcher {
namespace {

constexpr auto A = Injector::agent;
constexpr auto R = Injector::rank;
constexpr auto O = Injector::order;
constexpr auto M = Injector::minipod;
constexpr auto S = Injector::slurm;
constexpr auto F = Injector::files;
using T = Target;
using K = ExpectedEffect;
using L = ExpectedRecord;

struct NamedTarget {
  const char* name;
  Target target;
};
constexpr std::array named_targets = {
    NamedTarget{"active", T::active}, NamedTarget{"two_active", T::two_active},
    NamedTarget{"spare", T::spare},   NamedTarget{"promoted", T::promoted},
    NamedTarget{"leader", T::leader}, NamedTarget{"batch_host", T::batch_host},
    NamedTarget{"half", T::half},     NamedTarget{"every", T::every},
    NamedTarget{"rank", T::rank},     NamedTarget{"nothing", T::nothing},
};

}  // namespace

const std::vector<Fault>& faults() {
  // clang-format off
  static const std::vector<Fault> table = {
      // name, what is broken, injector, act, undo, target, seconds, effect, needs a spare, exit code, record
      // --- a rank ---
      {"rank_killed", "a rank's process, by SIGKILL", A, "kill_rank", "", T::rank, 0, K::attempt, false, 0},
      {"rank_stopped", "a rank's process holds (SIGSTOP): alive, connected, silent", A, "stop_rank", "", T::rank, 0, K::attempt, false, 0},
      {"rank_segfault", "a rank ends with SIGSEGV", R, "segfault", "", T::rank, 0, K::attempt, false, 0},
      {"rank_throws", "a rank fails with exit code 1", R, "throw", "", T::rank, 0, K::attempt, false, 0},
      {"rank_stalls", "a rank holds still in its forward pass, longer than it may", R, "stall", "", T::rank, 60, K::attempt, false, 0},
      {"rank_hiccups", "a rank holds still for two seconds: nothing has to be done", R, "stall", "", T::rank, 2, K::none, false, 0},
      {"rank_slow", "a rank computes at half speed for a while", R, "slow", "", T::rank, 5, K::none, false, 0},
      {"rank_out_of_memory", "a rank is killed for memory, and the node says so", A, "oom_rank", "", T::rank, 0, K::attempt, false, 0},
      // --- numbers ---
      {"gradient_nan", "a rank computes NaN from then on, and other ranks do not", R, "nan", "", T::rank, 0, K::attempt, false, 0, L::accused},
      {"state_flipped", "a bit of the optimizer's state changes", R, "flip_state", "", T::rank, 0, K::attempt, false, 0, L::accused},
      {"gradient_flipped", "a bit of a micro-batch's gradient changes: wrong arithmetic", R, "flip_gradient", "", T::rank, 0, K::attempt, false, 0, L::accused},
      // --- state ---
      {"save_without_space", "a checkpoint's write fails with ENOSPC", R, "no_space", "", T::rank, 0, K::none, false, 0, L::dropped},
      {"checkpoint_damaged", "bytes of the newest durable checkpoint change", F, "damage_newest", "", T::nothing, 0, K::none, false, 0, L::passed_over},
      {"local_dropped", "a node's local level is deleted", A, "drop_local", "", T::active, 0, K::none, false, 0, L::fetched},
      // --- the supervisors ---
      {"agent_killed", "an agent, by SIGKILL; its guardian starts another", A, "kill_agent", "", T::active, 0, K::none, false, 0},
      {"agent_frozen", "an agent holds for a while; its ranks go on", A, "freeze_agent", "", T::active, 20, K::none, false, 0},
      {"supervision_killed", "agent and guardian of a node, by SIGKILL; its ranks go on where SLURM lets them", M, "kill-agents", "", T::active, 0, K::none, false, 0},
      {"leader_killed", "the leader's process, by SIGKILL", A, "kill_agent", "", T::leader, 0, K::takeover, false, 0},
      {"leader_frozen", "the leader holds for a while, and wakes up replaced", A, "freeze_agent", "", T::leader, 8, K::takeover, false, 0},
      {"leader_cut", "the leader alone is cut off, with its node", M, "cut-link", "heal-link", T::leader, 12, K::takeover, false, 0},
      // --- a node ---
      {"node_killed", "a node's power goes", M, "kill-node", "", T::active, 0, K::attempt, true, 0},
      {"node_processes_killed", "every process of the run on a node, as a user can do it anywhere", A, "kill_node", "", T::active, 0, K::attempt, false, 0},
      {"node_frozen", "a node holds, and wakes up replaced", M, "freeze-node", "thaw-node", T::active, 15, K::attempt, true, 0},
      {"node_cut", "a node is cut off for good: link and shared files", M, "cut-link", "", T::active, 0, K::attempt, true, 0},
      {"node_cut_healed", "a node is cut off, and comes back replaced", M, "cut-link", "heal-link", T::active, 10, K::attempt, true, 0},
      {"link_flaps", "a link goes for less than the patience", M, "cut-link", "heal-link", T::active, 0.5, K::none, false, 0},
      {"node_returns", "a node's power goes and comes back", M, "kill-node", "revive-node", T::active, 10, K::attempt, true, 0},
      {"two_nodes_killed", "two nodes at the same moment", M, "kill-node", "", T::two_active, 0, K::attempt, true, 0},
      {"half_cut", "half of the nodes are cut off, and come back", M, "cut-link", "heal-link", T::half, 15, K::attempt, true, 0},
      {"spare_killed", "a spare's power goes while it waits", M, "kill-node", "", T::spare, 0, K::none, false, 0, L::lost},
      {"promoted_killed", "the spare that was just taken in", M, "kill-node", "", T::promoted, 0, K::attempt, true, 0},
      {"node_slowed", "other work takes a node's processors", M, "slow-node", "unslow-node", T::active, 8, K::none, false, 0},
      {"slurmd_killed", "SLURM's daemon of a node; its processes go on", M, "kill-slurmd", "", T::active, 0, K::none, false, 0},
      {"gpu_fallen", "a GPU falls off the bus (Xid 79): its rank ends, and the node says why", A, "xid_79", "", T::rank, 0, K::attempt, true, 0},
      // --- the batch host ---
      {"batch_host_killed", "the batch host's power goes, for good", M, "kill-node", "", T::batch_host, 0, K::none, false, 0, L::any_reaction},
      {"batch_host_returns", "the batch host is back before SLURM gave it up: SLURM ends or requeues the job", M, "kill-node", "revive-node", T::batch_host, 15, K::none, false, 0, L::any_reaction},
      {"batch_host_returns_late", "the batch host is back after SlurmdTimeout", M, "kill-node", "revive-node", T::batch_host, 60, K::none, false, 0, L::any_reaction},
      // --- what all nodes share ---
      {"slurmctld_down", "SLURM's controller is gone for minutes", M, "kill-slurmctld", "start-slurmctld", T::nothing, 90, K::none, false, 0},
      {"slurmctld_restarted", "SLURM's controller is killed and started again", M, "kill-slurmctld", "start-slurmctld", T::nothing, 1, K::none, false, 0},
      {"shared_gone", "the shared file system does not answer, on any node, for a minute", M, "hide-shared", "show-shared", T::nothing, 60, K::none, false, 0},
      {"shared_hangs", "calls on the shared file system wait, on every node, for a minute", M, "hang-shared", "wake-shared", T::nothing, 60, K::none, false, 0},
      {"node_storage_hangs", "they wait on one node that trains", M, "hang-shared", "wake-shared", T::active, 20, K::none, false, 0},
      {"leader_storage_hangs", "they wait on the leader's node", M, "hang-shared", "wake-shared", T::leader, 20, K::takeover, false, 0},
      {"data_hangs", "calls on a file system that is not the run directory's wait, on every node", M, "hang-data", "wake-data", T::nothing, 30, K::none, false, 0},
      {"data_frozen", "such a file system freezes: ranks that write to it cannot be killed", M, "freeze-data", "thaw-data", T::nothing, 30, K::attempt, false, 0, L::waited},
      // --- orders of people and SLURM ---
      {"evicted", "a node is taken out on order: no step is lost", O, "evict", "", T::active, 0, K::attempt, true, 0},
      {"paused", "the run holds on order, and goes on", O, "pause", "resume", T::nothing, 4, K::hold, false, 0},
      {"saved", "a checkpoint on order", O, "save", "", T::nothing, 0, K::none, false, 0, L::kept},
      {"time_limit", "SIGUSR1 for the batch script: the time limit is near", S, "USR1", "", T::nothing, 0, K::drain, false, 0},
      {"cancelled", "the job is cancelled, and submitted again", S, "cancel", "", T::nothing, 0, K::drain, false, 0},
      {"requeued", "the job is put back into the queue", S, "requeue", "", T::nothing, 0, K::drain, false, 0},
      {"preempted", "SIGTERM for every process of the job, then the queue", S, "preempt", "", T::nothing, 0, K::drain, false, 0},
      {"stopped", "the run is ended on order; it must not come back", O, "stop", "", T::nothing, 0, K::none, false, 93},
  };
  // clang-format on
  return table;
}

const Fault* fault_called(std::string_view name) {
  const auto& table = faults();
  const auto at = std::find_if(table.begin(), table.end(), [&](const Fault& f) { return f.name == name; });
  return at == table.end() ? nullptr : &*at;
}

std::vector<std::string> fault_names() {
  std::vector<std::string> names;
  for (const auto& fault : faults()) names.emplace_back(fault.name);
  return names;
}

const char* name_of(Injector injector) {
  constexpr std::array names = {"agent", "rank", "order", "minipod", "slurm", "files"};
  return names[as_size(injector)];
}

const char* name_of(Target target) {
  for (const auto& t : named_targets)
    if (t.target == target) return t.name;
  return "";
}

const Target* target_called(std::string_view name) {
  for (const auto& t : named_targets)
    if (t.name == name) return &t.target;
  return nullptr;
}

}  // namespace holdfast::launcher
