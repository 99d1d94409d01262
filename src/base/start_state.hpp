#pragma once
// From which state the ranks of an attempt start: one value, from the leader that decides it through the
// order to agents to the environment of each rank.
#include <cstdint>
#include <string>
#include <vector>

namespace holdfast {

struct StartState {
  /// State of later steps may be wrong (a comparison of the attempt before did not hold) and is not restored;
  /// -1: all may be. Needed until one attempt has restored: it puts later state away.
  std::int64_t trusted_step = -1;
  /// The newest steps that by the record of the run have a checkpoint, newest first. A folder that does not
  /// show them does not show a new run.
  std::vector<std::int64_t> durable_steps = {};
  /// The state in snapshot buffers (client/buffers.c) from which all ranks start; -1: none.
  std::int64_t sealed_step = -1;
  int sealed_attempt = 0;         ///< that sealed it
  std::string sealed_level = {};  ///< "local" or "partner"
};

}  // namespace holdfast
