// A Case is one failure. Each end of a rank and each sign becomes a Cause, with the weight of its kind. The
// heaviest Cause of the moment of the failure is the diagnosis; the others become evidence.
// 1. add(end): meaning_of() says what status and output of a rank mean by themselves.
// 2. find_moment(): when a rank first ended with a fault of its own, else when the first one ended. An end
//    more than a second later cannot be the cause.
// 3. add(sign): GpuHistory judges Xids. A fault that ends its node may be up to 120 s older than the moment;
//    a light one of a node that stays usable must concern an end on that node.
// 4. confirm_claims(): what a program says of its node holds if a sign of the node shows the same cause.
// 5. describe() puts the heaviest Cause into words. It blames the network if links of several nodes are down,
//    and, if ranks only report lost peers, the rank that most of them name.
//
// What a program writes never ends a node by itself, and a Cause of weight 0 is never the diagnosis.
#include "launcher/diagnose/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <map>
#include <set>

#include "launcher/diagnose/gpu_history.hpp"
#include "launcher/diagnose/output_patterns.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

// Seconds. Ends are reported as they happen, each over its own connection; signs are polled, so a cause may
// be reported after its effects.
constexpr double ends_apart = 1.0;    // the order of ends closer together means nothing
constexpr double all_ends = 2.5;      // an error that comes so long after the first victim's is not the cause
constexpr double sign_after = 3.0;    // a sign may come so long after the end that it explains
constexpr double sign_before = 10.0;  // a passing fault explains ends for so long
constexpr double lasting_before = 120;  // a lasting one (a lost GPU, a dead link) may stall ranks first
constexpr int own_fault = 10;           // weight; victims have less
// A rank that is killed writes nothing, and the ranks that lose it may write nothing that is known. A rank
// that is killed before any other shows a fault is not a victim: it weighs more than ranks that abort or end
// with an exit code after that.
constexpr int killed_first = 36;
constexpr std::size_t max_evidence = 12;

struct Cause {
  const SignKind* kind = nullptr;
  int weight = 0;
  Blame blame = Blame::nothing;
  bool ends_node = false, from_end = false, in_moment = false;
  int node = -1, rank = -1, xid = 0, xid_rank = -1;
  bool unclear = false;  ///< a sign that does not tell how bad the fault is
  bool killed = false;   ///< an end by SIGKILL, whatever it wrote before
  double at = 0;
  std::string says, advice, line;
  int named = 0;  ///< victims that name its rank

  void take(const SignVerdict& verdict) {
    blame = verdict.blame;
    ends_node = verdict.ends_node;
  }
};

/// A fault of this kind stays until something is done about it.
bool lasts(const SignKind& kind) {
  const std::string_view name = kind.name;
  return kind.ends_node || name == "xid" || name == "shared_gone";
}

class Case {
 public:
  Case(const std::vector<RankEnd>& ends, const std::vector<SeenSign>& signs,
       const std::vector<std::string>& names, const std::vector<PastXid>& past)
      : names_(names) {
    if (!ends.empty()) attempt_ = ends.front().attempt;
    for (const RankEnd& end : ends) add(end, signs);
    ends_ = causes_.size();
    find_moment(signs);
    const GpuHistory history(signs, past, names);
    for (std::size_t at = 0; at < signs.size(); ++at) add(at, history, signs);
    for (Cause& cause : causes_) cause.in_moment = cause.in_moment && cause.weight > 0;
    confirm_claims();
    put_proofs_before_claims();
  }

  Diagnosis solve() {
    Diagnosis d;
    const Cause* best = nullptr;
    for (const Cause& cause : causes_)
      if (cause.in_moment && (!best || before(cause, *best))) best = &cause;
    if (best) describe(*best, d);
    gather_evidence(best, d);
    return d;
  }

 private:
  std::string name(int node) const { return node_name(names_, node); }

  /// The error of a rank, or else the end of its log, which its agent has read.
  static std::string output_of(const RankEnd& end, const std::vector<SeenSign>& signs) {
    for (const SeenSign& s : signs)
      if (end.why.empty() && s.sign.kind == "log_tail" && s.sign.rank == end.rank && s.node == end.node &&
          s.sign.attempt == end.attempt)
        return s.sign.text;
    return end.why;
  }

  void add(const RankEnd& end, const std::vector<SeenSign>& signs) {
    Cause c;
    const Meaning meaning = meaning_of(end.rank, end.status, output_of(end, signs), end.our_codes);
    c.kind = meaning.kind;
    c.weight = c.kind->weight;
    c.take(verdict_of(*c.kind, Writer::program));
    c.killed = end.status == 128 + SIGKILL || end.status == -1;
    c.from_end = true;
    c.node = end.node;
    c.rank = end.rank;
    c.at = end.at;
    c.advice = c.kind->advice;
    c.line = meaning.line;
    c.says = fmt::format("rank {} on {} {}", end.rank, name(end.node),
                         end.status < 0     ? "vanished"
                         : end.status > 128 ? fmt::format("was ended by signal {}", end.status - 128)
                                            : fmt::format("ended with exit code {}", end.status));
    if (!meaning.line.empty()) c.says += ": " + meaning.line;
    if (std::string_view(c.kind->name) == "peer_lost") {
      ++complaints_;
      for (const int peer : meaning.peers) ++named_[peer];
    }
    if (std::string_view(c.kind->name) == "cannot_start") cannot_start_.insert(end.node);
    causes_.push_back(std::move(c));
  }

  /// The moment of the failure: the first end with a fault of its own, if it came soon after the first end of
  /// all.
  void find_moment(const std::vector<SeenSign>& signs) {
    double first = std::numeric_limits<double>::infinity(), own = first;
    for (const Cause& c : causes_) first = std::min(first, c.at);
    for (const Cause& c : causes_)
      if (c.weight >= own_fault && c.at <= first + all_ends) own = std::min(own, c.at);
    moment_ = own <= first + all_ends ? own : first;
    if (causes_.empty()) {
      moment_ = -std::numeric_limits<double>::infinity();
      for (const SeenSign& s : signs) moment_ = std::max(moment_, s.at);
    }
    for (Cause& c : causes_) {
      c.in_moment = c.at <= moment_ + ends_apart;
      if (c.killed && c.weight >= own_fault && c.at <= own) c.weight = std::max(c.weight, killed_first);
      const auto named = named_.find(c.rank);
      // Most of the ranks that lost a peer must name the same one: else they name each other.
      if (named != named_.end() && 2 * named->second > complaints_) c.named = named->second;
    }
  }

  void add(std::size_t at, const GpuHistory& history, const std::vector<SeenSign>& signs) {
    const SeenSign& seen = signs[at];
    const SignKind* kind = kind_called(seen.sign.kind);
    if (!kind || seen.sign.kind == "log_tail" || (attempt_ && !may_explain(seen, *attempt_))) return;
    const bool earlier = attempt_ && seen.sign.attempt != *attempt_;
    Cause c;
    c.kind = kind;
    c.weight = kind->weight;
    c.take(verdict_of(*kind, Writer::node));
    c.node = seen.node, c.rank = earlier ? -1 : seen.sign.rank, c.at = seen.at, c.advice = kind->advice,
    c.line = seen.sign.text;
    std::string what = kind->says;
    if (std::string_view(kind->name) == "xid" || std::string_view(kind->name) == "gpu_recovery")
      what = judge_gpu(at, seen, history, c);
    c.says = fmt::format("{} on {}{}{}", what, name(seen.node), seen.sign.text.empty() ? "" : ": ",
                         seen.sign.text);
    const bool over = is_over(seen, signs);
    if (over) c.ends_node = false;
    // What it has done to an earlier attempt is over; of an Xid its number tells whether it lasts.
    if (earlier && (over || (!c.ends_node && std::string_view(kind->name) != "shared_gone"))) return;
    c.in_moment = c.at <= moment_ + sign_after &&
                  c.at >= moment_ - (c.ends_node ? lasting_before : sign_before) && concerns(c);
    if (std::string_view(kind->cause) == "oom_kill") c.rank = rank_killed(c);
    causes_.push_back(std::move(c));
  }

  /// What a rank claims of its node is so where the node shows it itself. How bad it is, the rank may say
  /// only where the sign leaves it open.
  void confirm_claims() {
    for (Cause& claim : causes_) {
      if (!claim.from_end || claim.kind->blame != Blame::node) continue;
      for (std::size_t i = ends_; i < causes_.size(); ++i) {
        const Cause& c = causes_[i];
        if (!c.in_moment || c.node != claim.node || c.blame != Blame::node ||
            std::string_view(c.kind->cause) != claim.kind->cause)
          continue;
        claim.take({Blame::node, claim.ends_node || c.ends_node || (c.unclear && claim.kind->ends_node)});
      }
    }
  }

  /// A fault that ends a node, and that the node itself shows, explains more than what a rank says of
  /// another.
  void put_proofs_before_claims() {
    int proof = std::numeric_limits<int>::max();
    for (std::size_t i = ends_; i < causes_.size(); ++i)
      if (const Cause& c = causes_[i]; c.in_moment && c.ends_node && c.weight >= own_fault)
        proof = std::min(proof, c.weight);
    for (Cause& claim : causes_)
      if (claim.from_end && claim.blame == Blame::claim) claim.weight = std::min(claim.weight, proof - 1);
  }

  /// Weight and blame of an Xid or of the driver's recovery action; and its description.
  std::string judge_gpu(std::size_t at, const SeenSign& seen, const GpuHistory& history, Cause& c) const {
    const std::vector<int> ranks = ranks_of(seen);
    GpuAssessment assessment = history.assess(at, ranks);
    c.ends_node = assessment.action == XidAction::substitute;
    c.blame = assessment.blame;
    // An Xid that programs cause, too, says little more than the program's own error; one of an NVLink whose
    // registers are not known less than what the program says of it.
    if (c.blame == Blame::program) c.weight = kind_called("cuda_error")->weight + 1;
    if (assessment.unclear) c.weight = kind_called("nvlink_error")->weight - 1;
    c.unclear = assessment.unclear;
    if (assessment.action == XidAction::ignore || assessment.action == XidAction::watch) c.weight = 0;
    if (*assessment.advice) c.advice = assessment.advice;
    if (std::string_view(seen.sign.kind) == "xid") {
      c.xid = static_cast<int>(seen.sign.code);
      c.xid_rank = ranks.size() == 1 ? ranks.front() : -1;
    }
    return std::move(assessment.says);
  }

  /// The ranks of its node that may have caused an Xid: the one that it names, else those that show more than
  /// a lost peer.
  std::vector<int> ranks_of(const SeenSign& seen) const {
    if (seen.sign.rank >= 0) return {seen.sign.rank};
    std::vector<int> out;
    for (const Cause& c : causes_)
      if (c.from_end && c.in_moment && c.node == seen.node && c.weight >= own_fault) out.push_back(c.rank);
    return out;
  }

  /// A later sign shows that the fault is over.
  static bool is_over(const SeenSign& seen, const std::vector<SeenSign>& signs) {
    const std::string end = seen.sign.kind == "link_down"     ? "link_up"
                            : seen.sign.kind == "shared_gone" ? "shared_back"
                                                              : "";
    if (end.empty()) return false;
    return std::any_of(signs.begin(), signs.end(), [&](const SeenSign& s) {
      return s.sign.kind == end && s.node == seen.node && s.at >= seen.at && s.sign.text == seen.sign.text;
    });
  }

  /// A fault of a node that stays usable explains only ends on that node.
  bool concerns(const Cause& sign) const {
    if (ends_ == 0 || sign.ends_node || sign.blame == Blame::shared ||
        sign.weight >= kind_called("xid")->weight || std::string_view(sign.kind->cause) == "network")
      return true;
    if (std::string_view(sign.kind->cause) == "oom_kill") return rank_killed(sign) >= 0;
    return std::any_of(causes_.begin(), causes_.end(), [&](const Cause& c) {
      return c.from_end && c.in_moment && c.node == sign.node &&
             c.weight > kind_called("peer_lost")->weight &&
             (sign.rank < 0 || c.rank < 0 || c.rank == sign.rank);
    });
  }

  /// The rank that the kernel's OOM killer ended: one that was ended by SIGKILL, which is reported before the
  /// count of kills is read; an earlier kill was of another process. -1: none.
  int rank_killed(const Cause& sign) const {
    for (const Cause& c : causes_)
      if (c.killed && c.node == sign.node &&
          (sign.rank < 0 ? sign.at >= c.at - ends_apart && sign.at <= c.at + sign_after
                         : sign.rank == c.rank))
        return c.rank;
    return -1;
  }

  bool before(const Cause& a, const Cause& b) const {
    // Among traces, the rank that most others name as lost.
    const bool traces = a.blame == Blame::nothing && b.blame == Blame::nothing;
    if (traces && a.named != b.named) return a.named > b.named;
    if (a.weight != b.weight) return a.weight > b.weight;
    if (a.from_end != b.from_end) return a.from_end;  // an end names the rank
    return a.at < b.at;
  }

  void describe(const Cause& best, Diagnosis& d) {
    d.node = best.node;
    d.rank = best.rank;
    d.blame = best.blame;
    d.ends_node = best.ends_node;
    d.cause = best.kind->cause;
    d.kind = best.kind->name;
    d.says = best.says;
    d.advice = best.advice;
    if (d.rank < 0) d.rank = rank_beside(best);
    if (!best.from_end && d.rank >= 0) d.says = fmt::format("rank {}: {}", d.rank, d.says);
    if (best.blame == Blame::claim) {
      d.unproven = best.kind->ends_node;
      d.says += "; only the program says so";
      if (!d.advice.empty()) d.advice = "look into the program first; if it is the node: " + d.advice;
    }
    d.xid = best.xid;
    d.xid_rank = best.xid_rank;
    d.gpu = gpu_named_in(best.line);
    const std::string_view kind = best.kind->name;
    d.same_again =
        kind == "refused" || kind == "left_running" || (kind == "cannot_start" && cannot_start_.size() > 1);
    if (best.ends_node) d.ended_by[best.node] = name_of(best);
    for (const Cause& c : causes_)
      if (c.in_moment && c.ends_node && c.weight >= own_fault && !overruled(c) &&
          std::find(d.ended_nodes.begin(), d.ended_nodes.end(), c.node) == d.ended_nodes.end()) {
        d.ended_nodes.insert(c.node == best.node ? d.ended_nodes.begin() : d.ended_nodes.end(), c.node);
        d.ended_by.try_emplace(c.node, name_of(c));
      }
    if (kind == "link_down") blame_network(best, d);
    if (d.blame == Blame::shared) d.node = d.rank = -1;
    if (best.from_end && best.weight <= kind_called("peer_lost")->weight) blame_named(d);
  }

  static std::string name_of(const Cause& c) {
    return c.xid > 0 ? fmt::format("Xid {}", c.xid) : c.kind->name;
  }

  /// The rank that a node's fault hit first, if one shows more than a lost peer.
  int rank_beside(const Cause& sign) const {
    const Cause* hit = nullptr;
    for (const Cause& c : causes_)
      if (c.from_end && c.in_moment && c.node == sign.node && c.weight >= own_fault &&
          (!hit || before(c, *hit)))
        hit = &c;
    return hit ? hit->rank : -1;
  }

  /// The program reports a fault of the GPU, but the driver reports that the GPU can be used.
  bool overruled(const Cause& cause) const {
    return std::any_of(causes_.begin(), causes_.end(), [&](const Cause& c) {
      return c.in_moment && c.node == cause.node && !c.ends_node && c.weight > cause.weight &&
             std::string_view(c.kind->cause) == cause.kind->cause;
    });
  }

  /// Links of several nodes are down at once: the switch is to blame.
  void blame_network(const Cause& best, Diagnosis& d) {
    std::set<int> down;
    for (const Cause& c : causes_)
      if (c.in_moment && std::string_view(c.kind->name) == "link_down") down.insert(c.node);
    if (down.size() < 2) return;
    std::erase_if(d.ended_nodes, [&](int node) {
      return std::none_of(causes_.begin(), causes_.end(), [&](const Cause& c) {
        return c.in_moment && c.ends_node && c.node == node && std::string_view(c.kind->name) != "link_down";
      });
    });
    d.blame = Blame::shared;
    d.ends_node = false;
    d.says = fmt::format("links of {} nodes are down; {}", down.size(), best.says);
    d.advice = "check the switches of these nodes";
  }

  /// All ranks report lost peers only: blames the rank that most of them name.
  void blame_named(Diagnosis& d) const {
    const auto most = std::max_element(named_.begin(), named_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == named_.end() || 2 * most->second <= complaints_) return;
    d.rank = most->first;
    d.node = -1;
    for (const Cause& c : causes_)
      if (c.from_end && c.rank == d.rank) d.node = c.node;
    d.says = fmt::format("{} of {} ranks that lost a peer name rank {}; the first: {}", most->second,
                         complaints_, d.rank, d.says);
  }

  void gather_evidence(const Cause* best, Diagnosis& d) const {
    std::vector<const Cause*> seen;
    for (const Cause& c : causes_)
      if (&c != best && c.at >= moment_ - lasting_before) seen.push_back(&c);
    std::stable_sort(seen.begin(), seen.end(), [](const Cause* a, const Cause* b) { return a->at < b->at; });
    for (const Cause* c : seen) {
      if (d.evidence.size() == max_evidence) {
        d.evidence.push_back(fmt::format("and {} more", seen.size() - max_evidence));
        return;
      }
      d.evidence.push_back(fmt::format("{:+.1f} s: {}", c->at - moment_, c->says));
    }
  }

  const std::vector<std::string>& names_;
  std::optional<int> attempt_;  ///< whose ends are explained
  std::vector<Cause> causes_;   ///< ends first
  std::size_t ends_ = 0;        ///< so many of them
  std::map<int, int> named_;    ///< rank -> complaints that name it
  int complaints_ = 0;
  std::set<int> cannot_start_;  ///< nodes
  double moment_ = 0;
};

}  // namespace

bool may_explain(const SeenSign& seen, int attempt) {
  if (seen.sign.attempt == attempt) return true;
  const SignKind* kind = kind_called(seen.sign.kind);
  return seen.sign.attempt < attempt && kind && lasts(*kind);
}

Diagnosis diagnose(const std::vector<RankEnd>& ends, const std::vector<SeenSign>& signs,
                   const std::vector<std::string>& names, const std::vector<PastXid>& past) {
  return Case(ends, signs, names, past).solve();
}

}  // namespace holdfast::launcher
