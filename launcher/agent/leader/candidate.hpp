#pragma once
// The agent as a candidate: when it hears no leader, it asks the other agents, creates the file of the term,
// and leads. The run directory is read beside the loop: a file system that hangs must not stop heartbeats.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/leader/election.hpp"
#include "launcher/agent/leader/leader.hpp"
#include "launcher/agent/leader/leadership_state.hpp"
#include "launcher/supervise/roster.hpp"
#include "src/config/run_config.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class Candidate {
 public:
  /// Of node `self`, which knows `term` as the highest. `ended` is called when the run directory says that
  /// the run is over, with its exit code. `config` and `roster` must outlive this.
  Candidate(control::Loop& loop, RunDir run, const Roster& roster, const config::RunConfig& config,
            const control::Key& secret, std::shared_ptr<slurm::Cluster> cluster, int self, int term,
            std::function<void(int exit_code)> ended);

  /// The leader and attempt that this node accepts.
  LeadershipState& leadership() { return leadership_; }
  const LeadershipState& leadership() const { return leadership_; }
  /// Begins an election when it is time for one. To be called several times a second.
  void watch();
  /// A leader has said hello. False: it is to be refused. Else this node leads no more, and is no candidate.
  bool accept_leader(int term);
  void give_up_election() { election_.reset(); }
  /// What leads in this agent; null: nothing.
  const Leader* leading() const { return leading_.get(); }

 private:
  void start_election(int highest, int taken, const std::vector<bool>& lost);
  void election_is_over(bool won, int term);
  void lead(int term);
  void lead_with(int term, TermStart start);
  void cannot_lead(const std::string& why);

  control::Loop& loop_;
  RunDir run_;
  const Roster& roster_;
  const config::RunConfig& config_;
  control::Key secret_;
  std::shared_ptr<slurm::Cluster> cluster_;
  int self_;
  std::function<void(int)> ended_;
  LeadershipState leadership_;
  std::unique_ptr<Election> election_;
  std::unique_ptr<Leader> leading_;
  control::Worker arbiter_;  ///< reads and writes the run directory, which may hang
  bool reading_record_ = false;
  control::Loop::Handle beginning_;  ///< of a term: runs until the run directory has answered, or times out
  std::string trouble_;              ///< the last failure to read the run directory; "": none
};

}  // namespace holdfast::launcher
