#include "launcher/supervise/time_account.hpp"

#include <algorithm>
#include <utility>

namespace holdfast::launcher {

const char* name_of(TimeUse use) {
  constexpr std::array names = {"queue",  "gather", "clear",  "launch", "restore", "productive", "redone",
                                "shrunk", "saves",  "paused", "hung",   "detect",  "decide",     "end"};
  static_assert(names.size() == as_size(TimeUse::count_));
  return names[as_size(use)];
}

/// What an event begins.
struct TimeAccount::Taking {
  TimeAccount& a;

  void operator()(const events::LeaderElected& e) const {
    a.nodes_ = e.nodes;
    if (std::exchange(a.job_, e.job) != e.job) {
      a.go_on_as(TimeUse::gather);
      a.paused_ = false;
      a.slowdown_ = 1;
    }
  }
  void operator()(const events::AttemptPlanned& e) const {
    a.slots_ = std::max(a.slots_, static_cast<int>(e.placement.size()));
    a.restored_ = -1;
    a.go_on_as(TimeUse::clear);
  }
  void operator()(const events::AttemptStarted&) const { a.go_on_as(TimeUse::launch); }
  void operator()(const events::PlacementVerified&) const {
    a.go_on_as(a.restored_ == 0 ? TimeUse::launch : TimeUse::restore);
  }
  void operator()(const events::Restored& e) const {
    a.take_back(e.step);
    a.restored_ = e.step;
    if (e.step > 0 || a.now_ != TimeUse::restore) return;
    a.move_to(TimeUse::launch, a.since_);  // a fresh start restores nothing
    a.go_on_as(TimeUse::launch);
  }
  void operator()(const events::FirstStep& e) const {
    a.stretch_ = {std::max<std::int64_t>(a.restored_, 0), e.step, 0, 0};
    a.go_on_as(a.paused_ ? TimeUse::paused : TimeUse::productive);
  }
  void operator()(const events::CheckpointDropped& e) const { a.stalled(e.stalled_s); }
  void operator()(const events::CheckpointDurable& e) const {
    a.stalled(e.stalled_s);
    a.stretch_.to = std::max(a.stretch_.to, e.step);
    a.durable_part_ = a.stretch_;
  }
  void operator()(const events::Paused&) const {
    a.paused_ = true;
    if (a.now_ == TimeUse::productive) a.go_on_as(TimeUse::paused);
  }
  void operator()(const events::Resumed&) const {
    a.paused_ = false;
    if (a.now_ == TimeUse::paused) a.go_on_as(TimeUse::productive);
  }
  void operator()(const events::RunShrunk& e) const { a.slowdown_ = std::max(1.0, e.slowdown); }
  void operator()(const events::RunGrown& e) const { a.slowdown_ = std::max(1.0, e.slowdown); }
  void operator()(const events::AttemptEnded& e) const {
    a.stretch_.to = std::max(a.stretch_.to, e.step);
    // A program that does not report its steps has done them since its ranks were up.
    if (!e.reports) a.move_to(TimeUse::productive, e.ran_s - e.detected_s);
    if (e.cause == "finished" && a.restored_ < 0) a.move_to(TimeUse::productive, a.since_);
    a.move_to(TimeUse::decide, std::min(e.decided_s, e.detected_s));
    a.move_to(e.cause == "rank hung" ? TimeUse::hung : TimeUse::detect, e.detected_s - e.decided_s);
    a.go_on_as(e.cause == "finished" ? TimeUse::end : TimeUse::clear);
  }
  void operator()(const events::RunFinished&) const { a.go_on_as(TimeUse::end); }
  void operator()(const auto&) const {}
};

void TimeAccount::take(const LogEntry& entry) {
  if (began_ == 0) began_ = last_ = entry.envelope.unix;
  const auto* elected = std::get_if<events::LeaderElected>(&entry.event);
  // A leader's clock may be behind that of the one before: time goes on from where it was.
  if (elected) behind_ = std::max(0.0, last_ - entry.envelope.unix);
  if (elected && elected->job != job_) {
    lose_unsaved();
    go_on_as(TimeUse::queue);
  }
  advance(entry.envelope.unix + behind_);
  std::visit(Taking{*this}, entry.event);
}

void TimeAccount::pass(double unix) {
  if (const double now = unix + behind_; began_ > 0 && now > last_) advance(now);
}

void TimeAccount::pass_running(double unix) {
  pass(unix);
  if (now_ == TimeUse::restore) move_to(TimeUse::productive, since_);
}

void TimeAccount::advance(double now) {
  spend(now - last_);
  if (now_ != TimeUse::queue) node_seconds_ += (now - last_) * nodes_;
  last_ = now;
}

void TimeAccount::spend(double seconds) {
  since_ += seconds;
  if (now_ != TimeUse::productive) {
    part(now_) += seconds;
    return;
  }
  const double at_full_size = seconds / slowdown_;
  part(TimeUse::productive) += at_full_size;
  part(TimeUse::shrunk) += seconds - at_full_size;
  stretch_.productive += at_full_size;
  stretch_.shrunk += seconds - at_full_size;
}

/// When an attempt ends, its steps and their time are kept: a later attempt may do them again.
void TimeAccount::go_on_as(TimeUse use) {
  const bool stepped = now_ == TimeUse::productive || now_ == TimeUse::paused;
  const bool steps = use == TimeUse::productive || use == TimeUse::paused;
  if (stepped && !steps) {
    if (stretch_.to > stretch_.from) stretches_.push_back(stretch_);
    stretch_ = durable_part_ = {};
  }
  now_ = use;
  since_ = 0;
}

/// The last `seconds` of what goes on were something else.
void TimeAccount::move_to(TimeUse use, double seconds) {
  const double moved = std::clamp(seconds, 0.0, std::max(0.0, since_));
  spend(-moved);
  part(use) += moved;
}

/// Steps that were made until now have waited so long for saves.
void TimeAccount::stalled(double seconds) {
  if (now_ == TimeUse::productive) move_to(TimeUse::saves, seconds);
}

/// An attempt begins again after `step`: what others did beyond it is done twice.
void TimeAccount::take_back(std::int64_t step) {
  for (auto& s : stretches_) {
    if (s.to <= step) continue;
    const std::int64_t kept = std::max(step, s.from);
    const double share = static_cast<double>(s.to - kept) / static_cast<double>(s.to - s.from);
    const double productive = share * s.productive, shrunk = share * s.shrunk;
    part(TimeUse::productive) -= productive;
    part(TimeUse::shrunk) -= shrunk;
    part(TimeUse::redone) += productive + shrunk;
    s = {s.from, kept, s.productive - productive, s.shrunk - shrunk};
  }
  std::erase_if(stretches_, [](const Stretch& s) { return s.to <= s.from; });
}

/// An allocation that ends without a word takes everything along that was not durable.
void TimeAccount::lose_unsaved() {
  const double productive = stretch_.productive - durable_part_.productive;
  const double shrunk = stretch_.shrunk - durable_part_.shrunk;
  part(TimeUse::productive) -= productive;
  part(TimeUse::shrunk) -= shrunk;
  part(TimeUse::redone) += productive + shrunk;
  stretch_.productive -= productive;
  stretch_.shrunk -= shrunk;
}

double TimeAccount::goodput() const { return total() > 0 ? of(TimeUse::productive) / total() : 0; }

double TimeAccount::goodput_of_nodes() const {
  return node_seconds_ > 0 ? of(TimeUse::productive) * slots_ / node_seconds_ : 0;
}

}  // namespace holdfast::launcher
