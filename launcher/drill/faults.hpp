#pragma once
// The table of what `holdfast drill` can break: what, by whom, against whom, and what must come of it. Pure.
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::launcher {

/// Who breaks it.
enum class Hand {
  agent,    ///< the agent of the node (control::Inject without a rank, or for a rank's process)
  rank,     ///< the rank itself, told by its agent (src/train/injection.hpp)
  order,    ///< `holdfast ctl`
  minipod,  ///< scripts/minipod, for what no user may do to a real node
  slurm,    ///< the job, as its owner may treat it
  files     ///< the run directory
};

/// Whom it hits; drawn by the seed where there are several.
enum class Target {
  active,      ///< a node that trains, not the batch host
  two_active,  ///< two of those
  spare,       ///< a node that waits, neither batch host nor leader
  promoted,    ///< the node that was taken in for the newest attempt
  leader,
  batch_host,
  half,  ///< half of the nodes, rounded down, without the batch host
  every,
  rank,    ///< one rank on an active node
  nothing  ///< the job as a whole
};

/// What the run's own records must show of it: else it was not felt, and the case proves nothing.
enum class Mark {
  none,      ///< it may pass unnoticed; the bits are the proof
  attempt,   ///< the attempt ends, and another one comes back from saved state
  takeover,  ///< another leads; the attempt goes on
  drain,     ///< the run ends with its state saved, and goes on in the next allocation
  hold       ///< it holds, and goes on
};

/// What it must leave in the run's records beside its mark, after the blow.
enum class Trace {
  none,
  dropped,      ///< a checkpoint that was begun did not become durable
  kept,         ///< a drain was recorded, and a checkpoint since then is durable
  passed_over,  ///< the newest durable checkpoint was not what the run came back from
  fetched,      ///< the state that came back was not on its own nodes alone
  lost,         ///< the node was given up
  felt,         ///< the node was given up, an attempt ended, or another leads: whatever the node had to do
  accused       ///< the comparison accuses the node
};

struct Fault {
  const char* name;
  const char* breaks;  ///< for people
  Hand hand;
  const char* act;  ///< name of the injection, verb of the minipod, order, or signal
  const char*
      undo;  ///< what takes it back after its time, in the same hand; "": it heals by itself, or never
  Target target;
  double seconds;  ///< until it is undone, or how long it lasts; 0: for good
  Mark mark;
  bool needs_spare;
  int exit_code;  ///< 0: the same bits; else the run must stop with this
  Trace leaves = Trace::none;
};

const std::vector<Fault>& faults();
/// nullptr: there is none of that name.
const Fault* fault_called(std::string_view name);
std::vector<std::string> fault_names();

const char* name_of(Hand hand);
const char* name_of(Target target);
const Target* target_called(std::string_view name);

}  // namespace holdfast::launcher
