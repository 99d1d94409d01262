#pragma once
// Who exchanges what with whom in a small collective between nodes: recursive doubling (Thakur, Rabenseifner,
// Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4.5). Of n nodes, the
// first p = 2^k <= n exchange in k rounds with the node whose index differs in one bit; each of the others
// first gives what it brings to one of them, and gets the result from it at the end. So n nodes send
// p k + 2 (n - p) messages, where each to each would be n (n - 1).
#include <vector>

namespace holdfast::comm {

struct SmallExchange {
  int node = 0;  ///< the other one
  bool sends = false, receives = false;
  bool replaces = false;  ///< what comes is the result; else it is combined with what is there
};

/// The exchanges of node `here` of `nodes`, in order. Each one begins when the one before it has ended.
std::vector<SmallExchange> small_exchanges(int nodes, int here);

}  // namespace holdfast::comm
