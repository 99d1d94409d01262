#include "launcher/watch/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace holdfast::launcher::watch {
namespace {

constexpr double shown_in_s = 60;
constexpr double jump_share = 0.05;  // of the whole run

}  // namespace

Replay::Replay(const View& end, std::vector<nlohmann::json> steps) : end_(end) {
  from_ = std::numeric_limits<double>::max();
  const auto include = [&](double unix) {
    from_ = std::min(from_, unix);
    to_ = std::max(to_, unix);
  };
  for (const auto& entry : end_.events) include(entry.envelope.unix);
  StatusFacts one;
  for (auto& line : steps) {
    one.last_step = std::move(line);
    const auto at = last_step_at(one);
    if (!at) continue;
    include(*at);
    steps_.emplace_back(*at, std::move(*one.last_step));
  }
  std::ranges::stable_sort(steps_, {}, &std::pair<double, nlohmann::json>::first);
  from_ = std::min(from_, to_);
  at_ = from_;
  speed_ = std::max(1.0, (to_ - from_) / shown_in_s);
}

void Replay::pass(double seconds) {
  if (!held_) at_ = std::min(to_, at_ + seconds * speed_);
}

void Replay::take(char key) {
  const double jump = jump_share * (to_ - from_);
  switch (key) {
    case ' ':
      held_ = !held_;
      break;
    case '<':
      at_ = std::max(from_, at_ - jump);
      break;
    case '>':
      at_ = std::min(to_, at_ + jump);
      break;
    case '+':
      speed_ *= 2;
      break;
    case '-':
      speed_ = std::max(0.5, speed_ / 2);
      break;
    case 'q':
      over_ = quit_ = true;
      break;
    case 'r':
    case '\x1b':
      over_ = true;
      break;
    default:
      break;
  }
}

std::string Replay::footer() const {
  return fmt::format("replay x{:.0f}{}: space {}  <- -> jump  + - speed  r end  q quit", speed_,
                     held_ ? ", held" : "", held_ ? "go on" : "hold");
}

View Replay::view() const {
  View v;
  v.status.name = end_.status.name;
  v.status.steps = end_.status.steps;
  v.status.roster = end_.status.roster;
  v.status.promises = end_.status.promises;
  v.now = at_;
  for (const auto& entry : end_.events) {
    if (entry.envelope.unix > at_) break;
    v.events.push_back(entry);
    apply(v.status.state, entry);
  }
  for (const auto& [at, line] : steps_) {
    if (at > at_) break;
    report::take(v.metrics, line);
    v.status.last_step = line;
  }
  count_steps(v.status);
  v.footer = footer();
  return v;
}

void StepTape::add(const nlohmann::json& line) {
  if (count_++ % stride_ != 0) return;
  lines_.push_back(line);
  if (lines_.size() < most) return;
  for (std::size_t i = 0; 2 * i < lines_.size(); ++i) lines_[i] = std::move(lines_[2 * i]);
  lines_.resize(lines_.size() / 2);
  stride_ *= 2;
}

}  // namespace holdfast::launcher::watch
