#pragma once
// What an agent holds true about who leads and which attempt is alive, and what it therefore accepts. Pure:
// the daemon (agent.cpp) and the protocol's simulator act on the same answers.
//
//   event                       term                        leads   in a campaign   last word of a leader
//   hello of a leader, lower    -                           -       -               -           (refused)
//                      equal    -                           -       no              now
//                      higher   becomes it                  no      no              now
//   a leader's message          -                           -       -               now
//   campaign begins             the run directory's         -       yes             -
//   campaign lost               the highest that was seen   -       no              now, if that is higher
//   campaign won                becomes it, if it is higher yes     no              now
#include <cstdint>

#include "src/control/message.hpp"

namespace holdfast::launcher {

class Standing {
 public:
  struct Limits {
    double leader_silence_s = 2;
    double stagger_s = 0.5;   ///< between candidates
    double first_wait_s = 8;  ///< the others leave the first election to the batch host's agent for so long
  };
  /// `place`: of this node among the candidates, -1: it never leads. `term`: the highest that it knows of.
  /// `now` here and below: seconds of a steady clock.
  Standing(int place, Limits limits, int term, int attempt, double now);

  int term() const { return term_; }
  int attempt() const { return attempt_; }
  bool leads() const { return leading_; }

  /// May the sender of this hello lead us? A lower term never; else `now` counts as hearing from it, and
  /// whatever we were up to ourselves under a lower term is over.
  bool accept_leader(int term, double now);
  void leader_spoke(double now);
  void leader_lost();  ///< the connection is gone; silence still decides
  /// The answer to a candidate for `term`.
  control::Answer answer(int term, double now) const;

  /// Is it time to try the next term? Never while leading or in a campaign.
  bool should_campaign(double now) const;
  /// A campaign begins; `highest` term of the run directory. Returns the term to ask for.
  int begin_campaign(int highest);
  /// A campaign is over; `term`: taken by us (won) or the highest in the run directory. True: we lead it.
  bool campaign_over(bool won, int term, double now);
  /// We lead no more, or could not begin to: silence starts anew.
  void resigned(double now);

  /// Fencing: an order or a rank of `attempt`. Older ones are refused; a newer one ends all that is older
  /// here.
  enum class Fence { refuse, same, newer };
  Fence meet(int attempt);

 private:
  int place_;
  Limits limits_;
  int term_, attempt_;
  double heard_;
  bool connected_ = false, leading_ = false, campaigning_ = false;
};

}  // namespace holdfast::launcher
