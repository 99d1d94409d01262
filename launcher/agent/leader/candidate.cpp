// An election, step by step. The run directory is read and written in arbiter_'s thread alone, and the next
// step begins in the loop when the answer is there.
//
// 1. watch() has terms, lost nodes and the result read. If that fails, or the term that this node knows is
//    missing (nothing may be mounted), there is no election, and the next watch() tries again.
// 2. Election asks the agents. If it is lost, the run may be over: then ended_ gets the exit code.
// 3. take() creates the file of the term; if the only other agent is silent, it does so if SLURM answers.
// 4. lead() replays the event log and writes the election into it. After 20 s this node resigns, and an
//    answer that comes later is ignored. Else lead_with() creates the Leader.
//
// A leader that is accepted ends the election. A term that was taken at that time is renounced.
#include "launcher/agent/leader/candidate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {

constexpr Millis slurm_ping_limit{2000};
constexpr Millis begin_limit{20000};  // to read the event log and to write the election into it

/// What the run directory says before an election.
struct RecordedState {
  int highest = 0, taken = 0;  ///< terms: valid, and of all
  std::vector<bool> lost;      ///< by node; all are voters while the event log cannot be read
  std::optional<int> ended;    ///< the newest leader has ended the run, with this exit code
  std::string trouble;
};

RecordedState read_recorded_state(const RunDir& run, const Roster& roster) {
  RecordedState out;
  std::set<std::string> lost;
  try {
    out.taken = highest_term(run);
    out.highest = highest_valid_term(run);
    lost = replay(run).lost;
    if (files::exists_or_fail(run.result())) {
      const auto result = json_from(files::read_text(run.result()));
      if (!result.is_object())
        throw Error(Exit::runtime, run.result().string() + " is damaged", "it is no JSON object");
      out.ended = code_of(result, roster.job, out.highest);
    }
    // A log that was not there any more would be an empty one.
    if (highest_term(run) < out.taken) out.trouble = "the run directory has vanished";
  } catch (const std::exception& error) {
    out.trouble = error.what();
  }
  for (const auto& node : roster.nodes) out.lost.push_back(lost.contains(node.name));
  return out;
}

/// `slurm`: the only other agent cannot be reached. SLURM must answer, else this node is the one cut off.
bool take(const RunDir& run, int term, const std::string& node, slurm::Cluster* slurm) {
  try {
    if (slurm) slurm->ping(slurm_ping_limit);
    return take_term(run, term, node);
  } catch (const std::exception& error) {
    log::warn("term {} cannot be taken: {}", term, error.what());
    return false;
  }
}

LeadershipState first_leadership(int term, const Roster& roster, int node, const config::Supervise& limits,
                                 double now) {
  const auto place = std::find(roster.candidates.begin(), roster.candidates.end(), node);
  LeadershipState::Limits patience;
  patience.leader_silence_s = 1e-3 * limits.leader_silence_ms;
  return {place == roster.candidates.end() ? -1 : static_cast<int>(place - roster.candidates.begin()),
          patience, term, 0, now};
}

}  // namespace

Candidate::Candidate(Loop& loop, RunDir run, const Roster& roster, const config::RunConfig& config,
                     const Key& secret, std::shared_ptr<slurm::Cluster> cluster, int self, int term,
                     std::function<void(int)> ended)
    : loop_(loop),
      run_(std::move(run)),
      roster_(roster),
      config_(config),
      secret_(secret),
      cluster_(std::move(cluster)),
      self_(self),
      ended_(std::move(ended)),
      leadership_(first_leadership(term, roster, self, config.supervise, loop.steady_seconds())),
      arbiter_(loop) {}

bool Candidate::accept_leader(int term) {
  if (!leadership_.accept_leader(term, loop_.steady_seconds())) return false;
  if (!leadership_.leads()) leading_.reset(), beginning_.reset();
  election_.reset();
  return true;
}

void Candidate::watch() {
  if (reading_record_ || !leadership_.should_start_election(loop_.steady_seconds())) return;
  reading_record_ = true;
  arbiter_.ask([run = run_, roster = roster_] { return read_recorded_state(run, roster); },
               [this](const RecordedState& recorded) {
                 reading_record_ = false;
                 std::string trouble = recorded.trouble;
                 // An empty folder where the file system is not mounted, for example.
                 if (trouble.empty() && recorded.taken < leadership_.term())
                   trouble =
                       fmt::format("{} does not show term {}", run_.terms().string(), leadership_.term());
                 if (trouble != std::exchange(trouble_, trouble) && !trouble.empty())
                   log::warn("no election while the run directory cannot be read: {}", trouble);
                 if (!trouble.empty()) return;
                 if (leadership_.should_start_election(loop_.steady_seconds()))
                   start_election(recorded.highest, recorded.taken, recorded.lost);
               });
}

void Candidate::start_election(int highest, int taken, const std::vector<bool>& lost) {
  const int term = leadership_.begin_election(highest, taken);
  election_ = std::make_unique<Election>(
      loop_, roster_, secret_, self_, term, lost, [this, term](ElectionCount::Outcome outcome) {
        if (outcome == ElectionCount::Outcome::lost)
          return arbiter_.ask([run = run_, roster = roster_] { return read_recorded_state(run, roster); },
                              [this](const RecordedState& recorded) {
                                // The leader may have died while it told the agents so.
                                if (recorded.ended) return ended_(*recorded.ended);
                                election_is_over(false, recorded.highest);
                              });
        arbiter_.ask(
            [run = run_, term, node = roster_.nodes[self_].name,
             slurm = outcome == ElectionCount::Outcome::ask_slurm ? cluster_ : nullptr] {
              return take(run, term, node, slurm.get());
            },
            [this, term](bool won) { election_is_over(won, won ? term : 0); });
      });
}

void Candidate::election_is_over(bool won, int term) {
  election_.reset();
  switch (leadership_.election_over(won, term, loop_.steady_seconds())) {
    case LeadershipState::After::leads:
      return lead(term);
    case LeadershipState::After::follows:
      return;
    case LeadershipState::After::renounces:
      log::warn("term {} was taken too late: another leader speaks", term);
      return arbiter_.run([run = run_, term, node = roster_.nodes[self_].name] {
        try {
          renounce_term(run, term, node);
        } catch (const std::exception& error) {  // the present leader will be replaced
          log::warn("term {} cannot be renounced: {}", term, error.what());
        }
      });
  }
}

void Candidate::lead(int term) {
  log::info("leading, term {}", term);
  struct Begun {
    TermStart start;
    std::string trouble;
  };
  // Until this node leads or gives up, it refuses the other candidates.
  beginning_ = loop_.after(begin_limit, [this] { cannot_lead("the run directory does not answer"); });
  arbiter_.ask(
      [run = run_, roster = roster_, term, self = self_, unix_clock = loop_.unix_clock()]() -> Begun {
        try {
          return {start_term(run, roster, term, self, unix_clock), ""};
        } catch (const std::exception& error) {
          return {{}, error.what()};
        }
      },
      [this, term](Begun begun) {
        if (!beginning_) return;  // this node has given up meanwhile, or another one leads
        if (!begun.trouble.empty()) return cannot_lead(begun.trouble);
        beginning_.reset();
        lead_with(term, std::move(begun.start));
      });
}

void Candidate::cannot_lead(const std::string& why) {
  const auto over = std::move(beginning_);
  log::error("cannot lead: {}", why);
  leadership_.resigned(loop_.steady_seconds());
}

void Candidate::lead_with(int term, TermStart start) {
  try {
    leading_ =
        std::make_unique<Leader>(loop_, run_, roster_, config_, secret_, cluster_, term, self_,
                                 std::move(start), leadership_.last_heard(), [this](const std::string& why) {
                                   loop_.post([this, why] {
                                     log::warn("no longer leading: {}", why);
                                     leading_.reset();
                                     leadership_.resigned(loop_.steady_seconds());
                                   });
                                 });
  } catch (const std::exception& error) {
    cannot_lead(error.what());
  }
}

}  // namespace holdfast::launcher
