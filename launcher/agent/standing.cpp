#include "launcher/agent/standing.hpp"

#include <algorithm>

namespace holdfast::launcher {

Standing::Standing(int place, Limits limits, int epoch, int attempt, double now)
    : place_(place), limits_(limits), epoch_(epoch), attempt_(attempt), heard_(now) {}

bool Standing::accept_leader(int epoch, double now) {
  if (epoch < epoch_) return false;
  if (epoch > epoch_) leading_ = false;
  epoch_ = epoch, heard_ = now;
  connected_ = true, campaigning_ = false;
  return true;
}

void Standing::leader_spoke(double now) { heard_ = now; }
void Standing::leader_lost() { connected_ = false; }

control::Answer Standing::answer(int epoch, double now) const {
  const double age_s = now - heard_;
  const bool leaderless = !leading_ && (!connected_ || age_s >= limits_.leader_silence_s);
  // Candidates ask for the number after the highest that was taken: whoever leads by ours has been deposed,
  // even if that is us, and cut off as we are we have not heard of it.
  const bool deposed = epoch > epoch_ + 1;
  return {epoch > epoch_ && (leaderless || deposed), epoch_, static_cast<std::int64_t>(age_s * 1e3)};
}

bool Standing::should_campaign(double now) const {
  if (leading_ || campaigning_ || place_ < 0) return false;
  const double turn = limits_.stagger_s * place_;
  double patience = limits_.leader_silence_s + turn;
  if (epoch_ == 0) patience = place_ == 0 ? 0 : limits_.first_wait_s + turn;
  return now - heard_ >= patience;
}

int Standing::begin_campaign(int highest) {
  campaigning_ = true;
  epoch_ = std::max(epoch_, highest);
  return epoch_ + 1;
}

bool Standing::campaign_over(bool won, int epoch, double now) {
  campaigning_ = false;
  if (epoch <= epoch_) return false;
  // Won, or somebody else has: either way there is a leader, and it gets the time to say so.
  epoch_ = epoch, heard_ = now;
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
