#pragma once
// The table of the faults of `holdfast drill`: what is broken, by which injector, on which target, and the
// expected effect. Pure.
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::launcher {

/// Who injects it.
enum class Injector {
  agent,    ///< the agent of the node (control::Inject without a rank, or for a rank's process)
  rank,     ///< the rank itself, told by its agent (src/train/loop/injection.hpp)
  order,    ///< `holdfast ctl`
  minipod,  ///< scripts/minipod, for what no user may do to a real node
  slurm,    ///< commands on the job that its owner may give
  files     ///< the run directory
};

/// What it is injected into; drawn by the seed where several fit.
enum class Target {
  active,      ///< a node that trains, not the batch host
  two_active,  ///< two of those
  spare,       ///< a waiting node that is neither batch host nor leader
  promoted,    ///< the spare that got a slot in the newest attempt
  leader,
  batch_host,
  half,  ///< half of the nodes, rounded down, without the batch host
  every,
  rank,    ///< one rank on an active node
  nothing  ///< the job as a whole
};

/// What the run's event log must show of it: else it had no effect, and the case proves nothing.
enum class ExpectedEffect {
  none,      ///< it may go unnoticed; the bits are the proof
  attempt,   ///< the attempt ends, and the next one restores saved state
  takeover,  ///< another node leads; the attempt goes on
  drain,     ///< the run ends with its state saved, and goes on in the next allocation
  hold       ///< the run holds, and goes on
};

/// What the event log must show beside the effect, after the injection.
enum class ExpectedRecord {
  none,
  dropped,       ///< a checkpoint that was begun did not become durable
  kept,          ///< a drain was recorded, and a checkpoint since then is durable
  passed_over,   ///< the run did not restore the newest durable checkpoint
  fetched,       ///< the restored state did not come from local levels alone
  lost,          ///< the node was recorded as lost
  any_reaction,  ///< the node was recorded as lost, an attempt ended, or another node leads
  accused,       ///< the comparison accuses the node
  waited         ///< a start has waited for old ranks, and no node was lost
};

struct Fault {
  const char* name;
  const char* breaks;  ///< for people
  Injector injector;
  const char* act;  ///< name of the injection, verb of the minipod, order, or signal
  const char*
      undo;  ///< what undoes it after `seconds`, by the same injector; "": it ends by itself, or never
  Target target;
  double seconds;  ///< until it is undone, or how long it lasts; 0: for ever
  ExpectedEffect effect;
  bool needs_spare;
  int exit_code;  ///< 0: the same bits; else the run must stop with this
  ExpectedRecord record = ExpectedRecord::none;
};

const std::vector<Fault>& faults();
/// nullptr: there is none of that name.
const Fault* fault_called(std::string_view name);
std::vector<std::string> fault_names();

const char* name_of(Injector injector);
const char* name_of(Target target);
const Target* target_called(std::string_view name);

}  // namespace holdfast::launcher
