#pragma once
// The course of one case: when its faults are due and whom they hit, from what the run itself has written.
// Pure: a look at the run goes in, blows come out. The same seed and the same run: the same choices.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/drill/campaign.hpp"
#include "launcher/supervise/roster.hpp"
#include "launcher/supervise/run_state.hpp"

namespace holdfast::launcher {

/// When an event was written: Unix seconds, 0 where it does not say.
inline double time_of(const nlohmann::json& event) { return event.value("unix", 0.0); }

/// What can be seen of a run from outside.
struct View {
  double now = 0;  ///< Unix seconds
  std::vector<nlohmann::json> events;
  RunState state;  ///< their fold
  std::optional<Roster> roster;
  std::string leader;     ///< node; "": none yet
  std::int64_t step = 0;  ///< of the last whole line of the metrics
  bool saving = false;    ///< a checkpoint is being written
};

/// One thing to do to the run now.
struct Strike {
  const Fault* fault = nullptr;
  bool undo = false;
  std::vector<std::string> nodes;  ///< in the order of the roster
  int rank = -1;
  double seconds = 0;
  std::uint64_t seed = 0;
};

/// A fault that was dealt.
struct Struck {
  Strike what;
  double at = 0;          ///< Unix seconds, as the hand that dealt it says
  std::int64_t step = 0;  ///< how far the run had come
  bool undone = false;
};

class Course {
 public:
  Course(const DrillCase& plan, std::uint64_t seed);

  /// What is due: what must be taken back first, then at most one new fault. The caller deals them, and says
  /// when.
  std::vector<Strike> due(const View& view);
  void dealt(const Strike& strike, double at, const View& view);

  /// Everything was dealt, and what heals was healed.
  bool over() const;
  const std::vector<Struck>& struck() const { return struck_; }
  /// Names of the faults whose moment never came.
  std::vector<std::string> missed() const;

 private:
  bool moment_of(const PlannedFault& blow, const View& view);
  bool moment_in_soak(const PlannedFault& blow, const View& view);
  bool recovered(const View& view) const;
  std::optional<Strike> aim(const PlannedFault& blow, const View& view) const;
  std::uint64_t draw(std::uint64_t what) const;  ///< a number for the next blow

  DrillCase plan_;
  std::uint64_t seed_;
  std::vector<PlannedFault> blows_;  ///< in order
  std::vector<Struck> struck_;
  std::optional<std::int64_t>
      calm_since_;  ///< soak: the step at which the run had recovered from the last blow
};

}  // namespace holdfast::launcher
