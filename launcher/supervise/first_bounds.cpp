#include "launcher/supervise/first_bounds.hpp"

#include <algorithm>
#include <array>

#include "launcher/supervise/pace.hpp"

namespace holdfast::launcher {
namespace {

using control::Phase;

struct Rates {  // bytes or operations per second, of one rank
  double storage, computed, network, memory;
  double once_s;
};
constexpr Rates cpu_rates{20e6, 1e8, 20e6, 100e6, 1}, gpu_rates{20e6, 3e13, 10e9, 10e9, 20};
constexpr double connect_s = 0.05;  // to one other rank

const Rates& rates_of(const RankWork& w) { return w.gpu ? gpu_rates : cpu_rates; }
double transfer_s(std::int64_t bytes, double planned, double otherwise) {
  return static_cast<double>(bytes) / (planned > 0 ? planned : otherwise);
}

double begin_s(const RankWork& w) { return rates_of(w).once_s + connect_s * w.peers; }
double restore_s(const RankWork& w) {
  return transfer_s(w.restored, w.read_s, rates_of(w).storage) + transfer_s(w.state, 0, rates_of(w).memory) +
         begin_s(w);
}
double micro_step_s(const RankWork& w) {
  const Rates& rates = rates_of(w);
  return transfer_s(w.tokens, w.read_s, rates.storage) + w.operations / rates.computed +
         transfer_s(w.sent, 0, rates.network) + transfer_s(w.state, 0, rates.memory) + begin_s(w);
}
double save_s(const RankWork& w) {
  return transfer_s(w.saved, w.written_s, rates_of(w).storage) + micro_step_s(w);
}

struct PlannedPhase {
  Phase phase;
  double (*planned_s)(const RankWork&);
  bool patient = false;  ///< what cannot be read is asked for again
};
constexpr std::array planned_phases = {
    PlannedPhase{Phase::starting, nullptr},       PlannedPhase{Phase::restoring, restore_s, true},
    PlannedPhase{Phase::data, micro_step_s},      PlannedPhase{Phase::forward, micro_step_s},
    PlannedPhase{Phase::backward, micro_step_s},  PlannedPhase{Phase::collective, micro_step_s},
    PlannedPhase{Phase::optimizer, micro_step_s}, PlannedPhase{Phase::checkpoint, save_s},
    PlannedPhase{Phase::finishing, nullptr},      PlannedPhase{Phase::paused, nullptr},
};

const PlannedPhase* row_of(Phase phase) {
  const auto row = std::find_if(planned_phases.begin(), planned_phases.end(),
                                [&](const PlannedPhase& r) { return r.phase == phase; });
  return row == planned_phases.end() ? nullptr : &*row;
}

}  // namespace

double planned_s(Phase phase, const RankWork& work) {
  const PlannedPhase* row = row_of(phase);
  return row && row->planned_s && work.known() ? row->planned_s(work) : -1;
}

double first_bound_s(Phase phase, const RankWork& work, const config::Supervise& limits) {
  const double longest = limits.step_s, planned = planned_s(phase, work);
  if (planned < 0) return longest;
  const double rule = std::max(limits.hang_factor * planned, static_cast<double>(limits.hang_floor_s));
  return std::min(longest, Pace::young_allowance * rule + (row_of(phase)->patient ? work.patience_s : 0));
}

}  // namespace holdfast::launcher
