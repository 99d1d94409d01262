#pragma once
// Which nodes measure the network between them, in which round, and what the results say of a node. Pure.
#include <string>
#include <utility>
#include <vector>

namespace holdfast::launcher {

using Pair = std::pair<int, int>;  ///< indices of nodes, the smaller first
using Round = std::vector<Pair>;   ///< disjoint: all measure at once

/// Everyone meets everyone once, by the circle method: nodes - 1 rounds of nodes / 2 pairs, or `nodes` rounds
/// with one node idle in each when the number is odd.
std::vector<Round> tournament(int nodes);

struct PairResult {
  Pair pair;
  double bytes_s = 0;    ///< the slower direction; 0: they could not speak to each other
  double latency_s = 0;  ///< median of a round trip; 0: not measured
  std::string why;       ///< when they could not
};

struct PairLimits {
  double slow = 0.5;               ///< a pair is slow below this part of what the better quarter reaches
  double late = 4;                 ///< or above so many times the better quarter's round trip ...
  double latency_floor_s = 0.001;  ///< ... if that is more than this: less is noise
};

struct PairFindings {
  double median_bytes_s = 0, median_latency_s = 0;  ///< of pairs that could speak
  std::vector<Pair> slow;                           ///< includes those that could not speak
  std::vector<int> suspects;                        ///< nodes that slow pairs have in common
  std::vector<Pair> unexplained;  ///< slow pairs without a suspect: the way between, or either end
};
/// A node is a suspect when at least two of its pairs, and more than half of them, are slow once the pairs of
/// worse suspects are left out: one bad node makes all its partners look slow, and is the only one to look so
/// with everyone.
PairFindings judge_pairs(int nodes, const std::vector<PairResult>& results, const PairLimits& limits = {});

/// One more round when few were held: each node of an unexplained slow pair meets a node whose pairs were all
/// fast and whom it has not met. Empty when there is nothing to tell apart, or nobody to tell it with.
Round regroup(int nodes, const std::vector<PairResult>& results, const PairLimits& limits = {});

}  // namespace holdfast::launcher
