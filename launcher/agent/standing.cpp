#include "launcher/agent/standing.hpp"

#include <algorithm>

namespace holdfast::launcher {

Standing::Standing(int place, Limits limits, int term, int attempt, double now)
    : place_(place), limits_(limits), term_(term), attempt_(attempt), heard_(now) {}

bool Standing::accept_leader(int term, double now) {
  if (term < term_) return false;
  if (term > term_) leading_ = false;
  term_ = term, heard_ = now;
  connected_ = true, campaigning_ = false;
  return true;
}

void Standing::leader_spoke(double now) { heard_ = now; }
void Standing::leader_lost() { connected_ = false; }

control::Answer Standing::answer(int term, double now) const {
  const double age_s = now - heard_;
  const bool leaderless = !leading_ && (!connected_ || age_s >= limits_.leader_silence_s);
  // Candidates ask for the number after the highest that was taken: whoever leads by ours has been deposed,
  // even if that is us, and cut off as we are we have not heard of it.
  const bool deposed = term > term_ + 1;
  return {term > term_ && (leaderless || deposed), term_, static_cast<std::int64_t>(age_s * 1e3)};
}

bool Standing::should_campaign(double now) const {
  if (leading_ || campaigning_ || place_ < 0) return false;
  const double turn = limits_.stagger_s * place_;
  double patience = limits_.leader_silence_s + turn;
  if (term_ == 0) patience = place_ == 0 ? 0 : limits_.first_wait_s + turn;
  return now - heard_ >= patience;
}

int Standing::begin_campaign(int highest) {
  campaigning_ = true;
  term_ = std::max(term_, highest);
  return term_ + 1;
}

bool Standing::campaign_over(bool won, int term, double now) {
  campaigning_ = false;
  if (term <= term_) return false;
  // Won, or somebody else has: either way there is a leader, and it gets the time to say so.
  term_ = term, heard_ = now;
  leading_ = won;
  return won;
}

void Standing::resigned(double now) {
  leading_ = false;
  heard_ = now;
}

Standing::Fence Standing::meet(int attempt) {
  if (attempt < attempt_) return Fence::refuse;
  if (attempt == attempt_) return Fence::same;
  attempt_ = attempt;
  return Fence::newer;
}

}  // namespace holdfast::launcher
