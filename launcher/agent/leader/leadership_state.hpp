#pragma once
// What an agent knows about who leads and which attempt is alive, and what it therefore accepts. Pure.
//
// - A leader says hello: with a lower term it is refused. Else its term becomes this node's, an election of
//   this node is over, and so is its own leadership of a lower term; the leader was heard now.
// - A leader sends any other message: it was heard now.
// - An election begins: this node knows the run directory's term.
// - An election is lost: a term that is higher becomes this node's, and there is time to hear of its leader.
// - An election is won: this node leads in the new term, unless a leader speaks again meanwhile. Then the
//   term is renounced.
#include <cstdint>

#include "src/control/message.hpp"

namespace holdfast::launcher {

class LeadershipState {
 public:
  struct Limits {
    double leader_silence_s = 2;
    double stagger_s = 0.5;   ///< between candidates
    double first_wait_s = 8;  ///< the others leave the first election to the batch host's agent for so long
  };
  /// `place`: of this node among the candidates, -1: it never leads. `term`: the highest that it knows.
  /// `now` here and below: seconds of a steady clock.
  LeadershipState(int place, Limits limits, int term, int attempt, double now);

  int term() const { return term_; }
  int attempt() const { return attempt_; }
  bool leads() const { return leading_; }
  /// The last word of a leader other than this node.
  struct Heard {
    int term = 0;    ///< of that leader
    double at = -1;  ///< -1: none was ever heard
  };
  Heard last_heard() const { return last_heard_; }

  /// May the sender of this hello lead this node? Never with a lower term. Else the leader was heard at
  /// `now`, and this node's own leadership or election of a lower term is over.
  bool accept_leader(int term, double now);
  void leader_spoke(double now);
  void leader_lost();  ///< the connection is closed; the leader may still be silent for leader_silence_s
  /// The answer to a candidate for `term`.
  control::Answer answer(int term, double now) const;

  /// Is it time to try the next term? Never while leading or in an election.
  bool should_start_election(double now) const;
  /// An election begins; `highest` valid term of the run directory, and `taken`, the highest of all. Returns
  /// the term to ask for.
  int begin_election(int highest, int taken);
  /// An election is over; `term`: taken by this node (won) or the highest in the run directory. A term that
  /// was taken while a leader speaks to this node again is to be renounced: storage may have kept this node
  /// waiting for long.
  enum class After { leads, follows, renounces };
  After election_over(bool won, int term, double now);
  /// This node leads no more, or could not begin to: the silence of leaders is counted from `now`.
  void resigned(double now);

  /// Fencing: an order or a rank of `attempt` has come. An older one is refused; a newer one ends all older
  /// attempts on this node.
  enum class Fence { refuse, same, newer };
  Fence admit(int attempt);

 private:
  int place_;
  Limits limits_;
  int term_, attempt_;
  double heard_;  ///< the last sign of a leader, or when this node began to wait for one
  Heard last_heard_;
  bool connected_ = false, leading_ = false, in_election_ = false;
};

}  // namespace holdfast::launcher
