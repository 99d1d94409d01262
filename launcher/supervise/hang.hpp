#pragma once
// How ranks move, as their heartbeats tell; and when none makes progress: which rank holds the others up?
// Pure.
#include <optional>
#include <span>
#include <string>

#include "src/control/message.hpp"

namespace holdfast::launcher {

/// A rank that trains, as the leader sees it.
struct StillRank {
  int rank = 0;
  std::int64_t step = -1;
  control::Phase phase = control::Phase::starting;
  double still_s = 0;                           ///< since it last moved
  const control::RankFlight* flight = nullptr;  ///< its newest report, if that is recent enough
  bool unheard = false;                         ///< its agent lives, and has never heard from it
};

/// What a heartbeat says of a rank, compared with the one before.
struct RankMove {
  int rank = -1;
  std::int64_t step = -1;
  std::optional<double> step_s = {};  ///< it has come to another step: after so long
  std::optional<double> left_s = {};  ///< it has left `left`: after so long
  control::Phase left = control::Phase::starting;
  double compute_s = 0;  ///< of its own work in the step; 0: not reported
};

struct Culprit {
  int rank = 0;
  std::string why;  ///< the evidence against it; empty: only its phase
};

/// `ranks` hang: at least one of them has not moved for `limit_s`. The culprit is, in this order: a process
/// that sends nothing at all; a rank that others wait for according to the flight records; the rank that is
/// furthest behind and does not itself wait, according to their last reports.
Culprit who_hangs(std::span<const StillRank> ranks, double limit_s);

}  // namespace holdfast::launcher
