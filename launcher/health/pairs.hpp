#pragma once
// Chooses the pairs of nodes that measure the network between them, round by round, and finds the bad nodes
// from the results. Pure.
#include <string>
#include <utility>
#include <vector>

namespace holdfast::launcher {

using Pair = std::pair<int, int>;  ///< indices of nodes, the smaller first
using Round = std::vector<Pair>;   ///< disjoint pairs, which measure at once

/// All pairs once, by the circle method: nodes - 1 rounds of nodes / 2 pairs, or `nodes` rounds
/// with one node idle in each when the number is odd.
std::vector<Round> tournament(int nodes);

struct PairResult {
  Pair pair;
  double bytes_s = 0;    ///< the slower direction; 0: no connection
  double latency_s = 0;  ///< median of a round trip; 0: not measured
  std::string why;       ///< why there was none
};

struct PairLimits {
  double slow = 0.5;               ///< a pair is slow below this part of the upper quartile of rates ...
  double late = 4;                 ///< ... or above so many times the lower quartile of round trips, ...
  double latency_floor_s = 0.001;  ///< ... if the round trip is longer than this: less is noise
};

struct PairFindings {
  double median_bytes_s = 0, median_latency_s = 0;  ///< of pairs with a connection
  std::vector<Pair> slow;                           ///< including those without a connection
  std::vector<int> suspects;                        ///< nodes that slow pairs have in common
  std::vector<Pair> unexplained;  ///< slow pairs without a suspect: the route, or either end
};
/// A node is a suspect when at least two of its pairs, and more than half of them, are slow once the pairs of
/// worse suspects are left out: one bad node makes all its partners look slow, and is the only one that is
/// slow with all others.
PairFindings judge_pairs(int nodes, const std::vector<PairResult>& results, const PairLimits& limits = {});

/// One more round after an incomplete tournament: each node of an unexplained slow pair is paired with a node
/// whose pairs were all fast and with which it was not paired. Empty when there is no such pair or no such
/// node.
Round regroup(int nodes, const std::vector<PairResult>& results, const PairLimits& limits = {});

}  // namespace holdfast::launcher
