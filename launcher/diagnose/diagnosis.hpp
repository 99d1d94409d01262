#pragma once
// Finds the culprit among its victims. Pure: signs and ends of ranks, with place and time -> which rank or
// node failed first, and why.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnose/signs.hpp"

namespace holdfast::launcher {

/// A sign as the leader knows it.
struct SeenSign {
  int node = -1;
  control::Sign sign;
  double at = 0;  ///< when it happened, in the leader's time
};
/// How a rank of the attempt ended, or the error that it reported.
struct RankEnd {
  int rank = -1, node = -1;
  int status = 0;   ///< exit code, 128 + signal, -1: vanished
  std::string why;  ///< its own error, if it reported one
  double at = 0;
  /// Its exit code means what Holdfast's mean (src/base/error.hpp): it is our trainer, or has reported the
  /// code by the client. Of any other program 2, 3, 4 and 93 are exit codes like all others.
  bool our_codes = false;
  int attempt = 0;
};

/// An Xid by which an earlier attempt of the job ended, and the rank that showed it.
struct PastXid {
  int xid = 0;
  int node = -1, rank = -1;
  std::string text;  ///< its evidence, which may name the GPU
};
/// A sign of an earlier attempt explains nothing about this one, unless it is of the node or of storage, and
/// of a fault that lasts.
bool may_explain(const SeenSign& sign, int attempt);

struct Diagnosis {
  int node = -1, rank = -1;  ///< the culprit's; -1: none in particular
  Blame blame = Blame::nothing;
  bool ends_node = false;   ///< the node must not be used again in this job
  bool unproven = false;    ///< only the program says that the node's hardware is broken
  bool same_again = false;  ///< another try on any node fails the same way
  /// Short and stable, for events and reports: "gpu", "oom_kill", "no_space", "rank failed", ...
  std::string cause;
  std::string kind;                   ///< the sign's name (signs.hpp): finer than `cause`
  std::string says;                   ///< one sentence with the evidence
  std::string advice;                 ///< for the user or the administrator; "": none
  std::vector<std::string> evidence;  ///< further evidence, in the order of time
  std::vector<int> ended_nodes;  ///< all that must not be used again in this job: several may fail at once
  std::map<int, std::string> ended_by;  ///< of these: what ends them, "Xid 48" or the name of a sign
  int xid = 0;                          ///< the number, if it was one
  int xid_rank = -1;                    ///< the rank that showed it; -1: it is not known which
  std::string gpu;                      ///< UUID or PCI address, where the evidence names one
};

/// `ends`: of one attempt, in the order of their reports; `signs`: of all nodes, of the last minutes, also
/// those of earlier attempts (may_explain()). Without ends, of any attempt. Victims are not blamed: ranks
/// that ended after the first failure because of it (SIGTERM, SIGKILL by the agent, a broken connection).
/// Without any explanation the first end is the diagnosis. Signs of nodes without ranks (spares) do not
/// belong in `signs`; Xids of the whole job do, for those of an NVLink that recur. `past`: the Xids of
/// earlier attempts. `names` of nodes, for the texts; empty: their indices.
Diagnosis diagnose(const std::vector<RankEnd>& ends, const std::vector<SeenSign>& signs,
                   const std::vector<std::string>& names = {}, const std::vector<PastXid>& past = {});

}  // namespace holdfast::launcher
