#pragma once
// Nobody moves: who holds the others up? Pure.
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
  const control::RankFlight* flight = nullptr;  ///< its newest report, if that is new enough to count
  bool unheard = false;                         ///< its agent lives, and has never heard it
};

struct Culprit {
  int rank = 0;
  std::string why;  ///< what speaks against it; empty: only its phase does
};

/// `ranks` hang: one of them at least has been still for `limit_s`. In this order: a process that does not
/// even say that it is still there; one for which others wait by the flight records; the rank that is
/// furthest behind and does not itself wait, by what they last said.
Culprit who_hangs(std::span<const StillRank> ranks, double limit_s);

}  // namespace holdfast::launcher
