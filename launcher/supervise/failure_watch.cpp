#include "launcher/supervise/failure_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

constexpr double signs_life_s = 600;
constexpr std::size_t signs_kept = 1000;
constexpr double sign_is_news_s = 60;
constexpr std::size_t last_signs_told = 5;

}  // namespace

std::vector<PastXid> past_xids(const RunState& state, const Roster& roster) {
  std::vector<PastXid> out;
  for (const AttemptRecord& a : state.attempts)
    if (a.xid != 0 && a.term >= state.job_term)
      out.push_back({a.xid, roster.node_called(a.node), a.xid_rank,
                     a.evidence.empty() ? std::string() : a.evidence.front()});
  return out;
}

bool FailureWatch::take_signs(int n, const control::NodeSigns& what, double now) {
  bool news = false;
  for (const auto& sign : what.signs) {
    signs_.push_back({n, sign, now - 1e-3 * static_cast<double>(sign.age_ms)});
    news = news || sign.age_ms <= 1e3 * sign_is_news_s;
  }
  std::erase_if(signs_, [&](const SeenSign& s) { return s.at < now - signs_life_s && s.sign.kind != "xid"; });
  if (signs_.size() > signs_kept)
    signs_.erase(signs_.begin(), signs_.end() - static_cast<std::ptrdiff_t>(signs_kept));
  return news;
}

std::optional<FailureWatch::Ending> FailureWatch::ends_node(int n, const std::vector<PastXid>& past) const {
  std::vector<SeenSign> own;
  std::copy_if(signs_.begin(), signs_.end(), std::back_inserter(own),
               [&](const SeenSign& s) { return s.node == n; });
  Diagnosis found = diagnose({}, own, names_, past);
  if (!found.ends_node || found.node != n || found.kind == "link_down") return {};  // a link may come back
  return Ending{std::move(found.says), found.ended_by[n]};
}

std::vector<std::string> FailureWatch::last_signs(int node, int attempt, double now) const {
  std::vector<std::string> out;
  for (auto s = signs_.rbegin(); s != signs_.rend() && out.size() < last_signs_told; ++s)
    if (s->node == node && now - s->at <= signs_life_s && may_explain(*s, attempt))
      out.push_back(fmt::format("{:.1f} s before: {} {}", now - s->at, s->sign.kind, s->sign.text));
  return out;
}

void FailureWatch::take_end(RankEnd end) {
  if (std::none_of(ends_.begin(), ends_.end(), [&](const RankEnd& e) { return e.rank == end.rank; }))
    ends_.push_back(std::move(end));
}

void FailureWatch::suspect(Failure failure, double now) {
  if (pending_) return;
  pending_ = std::move(failure);
  pending_since_ = now;
}

Failure FailureWatch::diagnosed(const std::vector<int>& placement, const std::vector<PastXid>& past) const {
  Failure f = *pending_;
  if (ends_.empty() || f.kind != Failure::Kind::rank_exited) return f;
  std::vector<SeenSign> signs;
  std::copy_if(signs_.begin(), signs_.end(), std::back_inserter(signs), [&](const SeenSign& s) {
    return std::find(placement.begin(), placement.end(), s.node) != placement.end();
  });
  Diagnosis d = diagnose(ends_, signs, names_, past);
  f.node = d.node;
  f.rank = d.rank;
  f.blame = d.blame;
  f.ends_node = d.ends_node;
  f.unproven = d.unproven;
  f.same_again = d.same_again;
  f.gpu = std::move(d.gpu);
  f.cause = d.cause;
  f.evidence = d.says;
  f.advice = d.advice;
  f.seen = std::move(d.evidence);
  f.ended_nodes = std::move(d.ended_nodes);
  f.ended_by = std::move(d.ended_by);
  f.xid = d.xid;
  f.xid_rank = d.xid_rank;
  const auto own =
      std::find_if(ends_.begin(), ends_.end(), [&](const RankEnd& e) { return e.rank == f.rank; });
  f.status = own == ends_.end() ? 0 : own->status;
  f.our_codes = own != ends_.end() && own->our_codes;
  // The exit code alone may only mean that a rank has lost its agent.
  f.later = f.cause == "checkpoint_unreadable" &&
            std::any_of(ends_.begin(), ends_.end(),
                        [](const RankEnd& e) { return e.status == static_cast<int>(Exit::transient); });
  f.lost_peers = d.kind == "peer_lost";
  if (f.evidence.empty()) f.evidence = fmt::format("{} on {}", name_of(f.kind), names_[ends_.front().node]);
  return f;
}

void FailureWatch::new_attempt() {
  pending_.reset();
  ends_.clear();
}

void FailureWatch::extend_deadlines(double seconds, double now) {
  pending_since_ = std::min(pending_since_ + seconds, now);
}

}  // namespace holdfast::launcher
