#pragma once
// A drill file: which faults, when, on which targets, how often. Pure: text in, plan out.
//
//   [drill]
//   name = "nodes"                   # of the report
//   job = "../jobs/quickstart.toml"  # relative to this file; the command line may name another
//   seed = 1                         # of every choice
//   limit_s = 300                    # until the run of a case must be over
//   set = ["checkpoint.every=10"]
//
//   [[case]]
//   faults = ["node_killed at step 30-60", "promoted_killed when starting"]
//   name = "pair"                    # default: its faults' names
//   repeat = 3                       # each with other choices
//   set = ["train.steps=400"]        # with a baseline of its own, where bits depend on it
//   exit_code = 5                    # default: as the table of faults says
//   max_lost = 1                    # steps that an attempt may have to do again
//   draw = 100                       # a soak: so many of `faults`, drawn, in one job, ...
//   gap = "5-15"                     # ... each so many steps after the run has recovered
//
// A fault is its name and, in any order: `at step N` or `at step N-M`, `after S s` (of the fault before it),
// `when PHASE`, `on TARGET`, `for S s`.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/drill/faults.hpp"
#include "src/config/toml_document.hpp"

namespace holdfast::launcher {

struct NumberRange {
  std::int64_t low = 0, high = 0;
  bool operator==(const NumberRange&) const = default;
};

/// When a fault is injected.
struct When {
  enum class Kind { step, after, phase } kind = Kind::step;
  NumberRange steps{20, 60};  ///< optimizer steps done; one of the range is drawn
  double seconds = 0;         ///< after the fault before it; of the first one: after the run's first step
  std::string phase;          ///< a row of `phases()`
};

/// A phase of a run that can be waited for, and the event that begins it.
struct DrillPhase {
  const char* name;
  const char* event;  ///< "": read from the run directory instead
};
const std::vector<DrillPhase>& phases();

struct PlannedFault {
  const Fault* fault = nullptr;
  Target target = Target::nothing;
  double seconds = 0;
  When when;
};

struct DrillCase {
  std::string name;
  std::vector<PlannedFault> faults;  ///< in order; of a soak: the faults to draw from
  std::vector<std::string> set;
  int repeat = 1;
  int exit_code = 0;
  int max_lost = 1;
  int draw = 0;  ///< of a soak; 0: every fault once, in order
  NumberRange gap{5, 15};
  double limit_s = 0;
  int line = 0;
};

struct DrillPlan {
  std::string name = "drill";
  std::filesystem::path job;  ///< "": the command line names it
  std::uint64_t seed = 1;
  double limit_s = 300;
  std::vector<std::string> set;
  std::vector<DrillCase> cases;
};

/// Throws Error (usage) with the line that it does not understand.
DrillPlan read_drill(const config::Document& document);
/// One fault in words, for example "node_cut_healed on leader for 8 s at step 40". Throws Error (usage);
/// `where` names the line.
PlannedFault read_fault(std::string_view words, const std::string& where);

}  // namespace holdfast::launcher
