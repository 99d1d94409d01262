#pragma once
// Decides when a node needs a new agent step, from the results of probes of its agent and their times. Pure.
//
// clang-format off
//   the agent   means                                               a new step
//   answers     the step is fine                                    no
//   refuses     the node is up, but no agent listens: it came back, at once when it was silent before; else after two
//               its agent is starting, or the step is ending        refusals, when the step had its time to start
//   is silent   the node is down or cut off; srun may wait for it   after three silences and 15 s; each time the node stays
//               for ever                                            silent the next one waits twice as long
// clang-format on
namespace holdfast::launcher {

class StepWatch {
 public:
  enum class Probe { answers, refuses, silent };
  /// A step was started. `now` here and below: seconds of a steady clock.
  void started(double now);
  void probed(Probe what, double now);
  /// The present step, if any, is useless.
  bool wants_new_step(double now) const;
  /// The node has come back since the last step was started: a new step need not wait.
  bool came_back() const { return back_; }
  bool reached_within(double seconds, double now) const { return heard_ >= 0 && now - heard_ < seconds; }
  /// The agent has answered since the last step was started.
  bool heard_since_start() const { return heard_since_start_; }
  double started_at() const { return started_; }
  bool answers() const { return last_ == Probe::answers; }

 private:
  double started_ = -1, heard_ = -1;
  Probe last_ = Probe::answers;
  int refused_ = 0, silent_ = 0;
  int in_vain_ = 0;  ///< steps that were started and brought no answer
  bool back_ = false, heard_since_start_ = false;
};

}  // namespace holdfast::launcher
