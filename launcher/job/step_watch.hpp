#pragma once
// When does a node need a new agent step? Pure: told what probes of its agent say, and when.
//
//   the agent   means                                               a new step
//   answers     all is well                                         no
//   refuses     the node lives, nobody listens: it came back, or    at once when it was silent before; else
//   after
//               its agent is starting, or the step's end is near    two refusals, when the step had its time
//   is silent   the node is gone or cut off; srun may wait for it   after three silences and 15 s, and the
//   next
//               for ever                                            one no sooner than 15 s later
namespace holdfast::launcher {

class StepWatch {
 public:
  enum class Probe { answers, refuses, silent };
  /// A step was started. `now` here and below: seconds of a steady clock.
  void started(double now);
  void probed(Probe what, double now);
  /// The step that there is, if any, is of no use.
  bool wants_new_step(double now) const;
  /// The node has come back since the last step was started: no reason to go on waiting for its next turn.
  bool came_back() const { return back_; }
  bool reached_within(double seconds, double now) const { return heard_ >= 0 && now - heard_ < seconds; }
  bool answers() const { return last_ == Probe::answers; }

 private:
  double started_ = -1, heard_ = -1;
  Probe last_ = Probe::answers;
  int refused_ = 0, silent_ = 0;
  bool back_ = false, heard_since_start_ = false;
};

}  // namespace holdfast::launcher
