#include "launcher/agent/leader/leadership_state.hpp"

#include <algorithm>

namespace holdfast::launcher {

LeadershipState::LeadershipState(int place, Limits limits, int term, int attempt, double now)
    : place_(place), limits_(limits), term_(term), attempt_(attempt), heard_(now) {}

bool LeadershipState::accept_leader(int term, double now) {
  if (term < term_) return false;
  if (term > term_) leading_ = false;
  term_ = term;
  leader_spoke(now);
  connected_ = true;
  in_election_ = false;
  return true;
}

void LeadershipState::leader_spoke(double now) {
  heard_ = now;
  if (!leading_) last_heard_ = {term_, now};
}
void LeadershipState::leader_lost() { connected_ = false; }

control::Answer LeadershipState::answer(int term, double now) const {
  const double age_s = now - heard_;
  const bool leaderless = !leading_ && (!connected_ || age_s >= limits_.leader_silence_s);
  // Candidates ask for the term after the highest that was taken: the leader of our term has been replaced,
  // even if this node is that leader and, being cut off, has not heard of it.
  const bool replaced = term > term_ + 1;
  return {term > term_ && (leaderless || replaced), term_, static_cast<std::int64_t>(age_s * 1e3)};
}

bool LeadershipState::should_start_election(double now) const {
  if (leading_ || in_election_ || place_ < 0) return false;
  const double turn = limits_.stagger_s * place_;
  double patience = limits_.leader_silence_s + turn;
  if (term_ == 0) patience = place_ == 0 ? 0 : limits_.first_wait_s + turn;
  return now - heard_ >= patience;
}

int LeadershipState::begin_election(int highest, int taken) {
  in_election_ = true;
  term_ = std::max(term_, highest);
  return std::max(term_, taken) + 1;
}

LeadershipState::After LeadershipState::election_over(bool won, int term, double now) {
  in_election_ = false;
  if (won && connected_ && now - heard_ < limits_.leader_silence_s) return After::renounces;
  if (term <= term_) return won ? After::renounces : After::follows;
  // This node has won, or another one has: either way there is a leader, and it gets the time to say so.
  term_ = term;
  heard_ = now;
  leading_ = won;
  return won ? After::leads : After::follows;
}

void LeadershipState::resigned(double now) {
  leading_ = false;
  heard_ = now;
}

LeadershipState::Fence LeadershipState::admit(int attempt) {
  if (attempt < attempt_) return Fence::refuse;
  if (attempt == attempt_) return Fence::same;
  attempt_ = attempt;
  return Fence::newer;
}

}  // namespace holdfast::launcher
