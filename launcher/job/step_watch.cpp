#include "launcher/job/step_watch.hpp"

#include <algorithm>

namespace holdfast::launcher {

namespace {
constexpr double settle_s = 1;        // at least between two steps on one node
constexpr double first_start_s = 30;  // many agents that start at once are slow
constexpr double srun_s = 15;         // srun may be waiting for a node that does not answer now
constexpr int most_doublings = 6;     // of that time: a node that stays away is tried every 16 minutes
constexpr int refusals = 2, silences = 3;
}  // namespace

void StepWatch::started(double now) {
  if (silent_ >= silences) in_vain_ = std::min(in_vain_ + 1, most_doublings);
  started_ = now;
  refused_ = silent_ = 0;
  back_ = heard_since_start_ = false;
}

void StepWatch::probed(Probe what, double now) {
  if (what == Probe::answers) {
    heard_ = now;
    heard_since_start_ = true;
    refused_ = silent_ = in_vain_ = 0;
    back_ = false;
  } else if (what == Probe::refuses) {
    back_ = back_ || last_ == Probe::silent;
    in_vain_ = 0;
    ++refused_;
    silent_ = 0;
  } else {
    ++silent_;
    refused_ = 0;
  }
  last_ = what;
}

bool StepWatch::wants_new_step(double now) const {
  const double age = now - started_;
  if (age < settle_s) return false;
  if (back_) return true;
  if (refused_ >= refusals && age > (heard_since_start_ ? settle_s : first_start_s)) return true;
  return silent_ >= silences && age > srun_s * (1 << in_vain_);
}

}  // namespace holdfast::launcher
