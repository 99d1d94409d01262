#pragma once
// Failures of a job of four nodes with four ranks each, as the leader sees them: the culprit, and the
// messages of all others. The texts are those of real programs.
#include <algorithm>
#include <string>
#include <vector>

#include "launcher/diagnose/diagnosis.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::launcher::test {

constexpr int nodes = 4, per_node = 4, world = nodes * per_node;
inline int node_of(int rank) { return rank / per_node; }

/// The true cause. Rank -1: no single rank, or it cannot be known.
struct Truth {
  int node = -1, rank = -1;
  std::string cause;
  Blame blame = Blame::nothing;
  bool ends_node = false;
};
struct Labelled {
  std::string name;
  std::vector<RankEnd> ends;
  std::vector<SeenSign> signs;
  Truth truth;
  std::vector<PastXid> past = {};
};

inline RankEnd end(int rank, int status, double at, std::string why = "") {
  return {rank, node_of(rank), status, std::move(why), at};
}
inline SeenSign sign(int node, std::string kind, double at, std::string text = "", std::int64_t code = 0,
                     int rank = -1) {
  return {node, {std::move(kind), rank, code, 0, std::move(text)}, at};
}

/// Messages of ranks whose peer has ended.
inline const std::vector<std::string>& complaints() {
  static const std::vector<std::string> texts = {
      "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2036, remote process exited "
      "or there was "
      "a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error "
      "or a remote "
      "process exiting prematurely.",
      "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.1.7]:43122",
      "RuntimeError: [gloo/transport/tcp/pair.cc:525] Read error [10.0.1.7]:9733: Connection reset by peer",
      "[dgx003:12011:0:12011] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_2:1/IB (synd 0x15 "
      "vend 0x81 hw_synd "
      "0/0)",
      "[E ProcessGroupNCCL.cpp:474] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4120, "
      "OpType=_REDUCE_SCATTER_BASE, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.",
      "MPI_Recv with rank 6 failed (MPI_ERR_PROC_FAILED: Process Failure)",
      "allreduce #812 over the world did not finish within 5 s (rank 6 has not arrived)",
      "BrokenPipeError: [Errno 32] Broken pipe",
      "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1211 got signal: 15",
      "the exchange of state with rank 6 failed (Endpoint timeout; 0 of 33554432 bytes came)"};
  return texts;
}

/// All ranks but those in `but` end with `status` one after the other, each with an error message when `why`
/// is empty.
inline void others(std::vector<RankEnd>& ends, int status, double from, std::vector<int> but,
                   const std::string& why = "complain", double apart = 0.02) {
  int n = 0;
  for (int rank = 0; rank < world; ++rank) {
    if (std::find(but.begin(), but.end(), rank) != but.end()) continue;
    const auto& all = complaints();
    ends.push_back(end(rank, status, from + apart * n,
                       why == "complain" ? all[as_size(rank + 3 * n) % all.size()] : why));
    ++n;
  }
}

std::vector<Labelled> labelled_cases();
/// A failure of a random kind at a random place, with noise: late signs, early error messages, unrelated
/// signs.
Labelled random_case(unsigned seed);

}  // namespace holdfast::launcher::test
