// The agent as a candidate: when no leader is heard, it asks the others, takes the term's file, and leads.
// The run directory is asked beside the loop: a file system that hangs must not silence this node.
#include <nlohmann/json.hpp>

#include "launcher/agent/agent.hpp"
#include "launcher/supervise/journal.hpp"
#include "slurm/cluster_cli.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

using namespace control;

namespace {

constexpr Millis third_voice_limit{2000};
constexpr Millis begin_limit{20000};  // to read the event log and to write the election into it

/// What the run directory says before a campaign.
struct Outlook {
  int highest = 0;
  std::vector<bool> lost;    ///< by node; all are voters while the event log cannot be read
  std::optional<int> ended;  ///< by the newest leader there is, with this exit code
  std::string trouble;
};

Outlook look(const RunDir& run, const Roster& roster) {
  Outlook out;
  std::set<std::string> lost;
  try {
    out.highest = highest_term(run);
    lost = fold(run).lost;
    if (files::fs::exists(run.result()))
      out.ended = code_of(nlohmann::json::parse(files::read_text(run.result())), roster.job, out.highest);
  } catch (const std::exception& error) {
    out.trouble = error.what();
  }
  for (const auto& node : roster.nodes) out.lost.push_back(lost.contains(node.name));
  return out;
}

/// Of two agents, the other out of reach: SLURM must hear us, else it is we who are cut off.
bool take(const RunDir& run, int term, const std::string& node, bool ask_slurm) {
  try {
    if (ask_slurm) slurm::ClusterCli().ping(third_voice_limit);
    return take_term(run, term, node);
  } catch (const std::exception& error) {
    log::warn("term {} cannot be taken: {}", term, error.what());
    return false;
  }
}

}  // namespace

void Agent::watch_leader() {
  if (looking_ || !standing_.should_campaign(steady_seconds())) return;
  looking_ = true;
  arbiter_.ask([run = run_, roster = roster_] { return look(run, roster); },
               [this](const Outlook& outlook) {
                 looking_ = false;
                 if (outlook.trouble != std::exchange(trouble_, outlook.trouble) && !outlook.trouble.empty())
                   log::warn("no campaign while the run directory does not answer: {}", outlook.trouble);
                 if (!outlook.trouble.empty()) return;
                 if (standing_.should_campaign(steady_seconds())) campaign(outlook.highest, outlook.lost);
               });
}

void Agent::campaign(int highest, const std::vector<bool>& lost) {
  const int term = standing_.begin_campaign(highest);
  campaign_ = std::make_unique<Campaign>(
      loop_, roster_, secret_, index_, term, lost, [this, term](Ballot::Outcome outcome) {
        if (outcome == Ballot::Outcome::lost)
          return arbiter_.ask([run = run_, roster = roster_] { return look(run, roster); },
                              [this](const Outlook& seen) {
                                // The leader may have died while it said so: those who heard it have left.
                                if (seen.ended) return leave(*seen.ended);
                                campaign_is_over(false, seen.highest);
                              });
        const bool third_voice = outcome == Ballot::Outcome::third_voice;
        arbiter_.ask(
            [run = run_, term, node = node_, third_voice] { return take(run, term, node, third_voice); },
            [this, term](bool taken) { campaign_is_over(taken, taken ? term : 0); });
      });
}

/// Even when a leader was heard meanwhile: if the file is ours, nobody else can lead by that number.
void Agent::campaign_is_over(bool won, int term) {
  campaign_.reset();
  if (standing_.campaign_over(won, term, steady_seconds())) lead(term);
}

void Agent::lead(int term) {
  log::info("leading, term {}", term);
  struct Begun {
    Inheritance inherited;
    std::string trouble;
  };
  // While we neither lead nor give up, we refuse the other candidates.
  beginning_ = loop_.after(begin_limit, [this] { cannot_lead("the run directory does not answer"); });
  arbiter_.ask(
      [run = run_, roster = roster_, term, self = index_]() -> Begun {
        try {
          return {inherit(run, roster, term, self), ""};
        } catch (const std::exception& error) {
          return {{}, error.what()};
        }
      },
      [this, term](Begun begun) {
        if (!beginning_) return;  // given up meanwhile, or somebody else leads
        if (!begun.trouble.empty()) return cannot_lead(begun.trouble);
        beginning_.reset();
        lead_with(term, std::move(begun.inherited));
      });
}

void Agent::cannot_lead(const std::string& why) {
  const auto over = std::move(beginning_);
  log::error("cannot lead: {}", why);
  standing_.resigned(steady_seconds());
}

void Agent::lead_with(int term, Inheritance inherited) {
  try {
    leading_ = std::make_unique<Leader>(loop_, run_, roster_, config_, secret_,
                                        std::make_shared<slurm::ClusterCli>(), term, index_,
                                        std::move(inherited), [this](const std::string& why) {
                                          loop_.post([this, why] {
                                            log::warn("no longer leading: {}", why);
                                            leading_.reset();
                                            standing_.resigned(steady_seconds());
                                          });
                                        });
  } catch (const std::exception& error) {
    cannot_lead(error.what());
  }
}

}  // namespace holdfast::launcher
