#pragma once
// The SLURM steps in which the agents of a job run. At first nodes of equal GPUs share one: a controller that
// limits the requests of a user starts hundreds of agents as quickly as one. A node whose agent is missing
// later gets a step of its own.
//
// - A step that nodes share has ended: those without an agent get two steps, half of them each. A node that
//   SLURM cannot reach makes it refuse a step on all of them.
// - All agents of such a step have answered: its srun is killed, which agents do not notice. It would end
//   them all when one of the nodes came back without the step.
// - A node's own step has ended: another one is started, after a pause that doubles, up to ten minutes.
// - A node wants a step (step_watch.hpp): its own step is killed if there is one, and another one starts.
// - A step has ended, and no agent has ever answered: a trial step runs on the batch host, whose error is
//   SLURM's reason. `refused` is called when SLURM has refused trials for a minute.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/ranks/children.hpp"
#include "launcher/job/step_watch.hpp"
#include "slurm/cluster.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/loop.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class AgentSteps {
 public:
  struct Setup {
    RunDir run;
    slurm::JobId job = 0;
    std::string trial_node;           ///< the batch host, where there is one
    std::vector<std::string> nodes;   ///< with an agent each
    std::map<std::string, int> gpus;  ///< that the job has on each node; a node may be absent
    std::function<void(slurm::StepRequest&)> into_image;  ///< puts a step into the image of the settings
    double patience_s = 0;  ///< with a step that nodes share, until an agent has to answer
    double refusal_s = 60;  ///< trial steps are refused so long before `refused` is called
  };
  struct Hooks {
    /// A step has ended: calls `then` when the run is not over.
    std::function<void(std::function<void()> then)> unless_over;
    /// SLURM refuses every step; `why` in its own words.
    std::function<void(const std::string& why)> refused;
    /// After stop(): the last agent has ended; may be called again.
    std::function<void()> none_left;
  };
  AgentSteps(control::RealLoop& loop, slurm::Cluster& cluster, Setup setup, Hooks hooks);

  void start_all();
  /// The result of a probe of a node's agent.
  void probed(const std::string& node, StepWatch::Probe what);
  const StepWatch& watch(const std::string& node) const { return steps_.at(node).watch; }

  /// A node wants a new step.
  bool misses_agents() const;
  /// Starts steps for nodes that want one. The end of a step that has not ended ends the ranks in it, so
  /// those of `spared` nodes are left alone. Not in a run that is over.
  void renew(const std::function<bool(const std::string& node)>& spared);
  /// No step is started any more: SLURM starts nothing in a job that ends.
  void start_no_more() { starts_ = false; }
  /// The run is over: nothing is started, and `none_left` is called, at once or later.
  void stop();
  /// SIGTERM to every agent, by srun or by SLURM.
  void terminate();

 private:
  struct Step {
    pid_t pid = 0;
    bool released = false;  ///< its agent is in a step whose srun was killed
    Millis pause;
    control::Loop::Handle again;
    std::string said;  ///< at the end of its log, when it was told last
    StepWatch watch;
  };
  struct SharedStep {
    std::vector<std::string> nodes;
    pid_t pid = 0;
    bool released = false;  ///< its srun was killed, not the agents
    control::Loop::Handle again;
  };

  bool wants_new_step(const std::string& node, const Step& step) const;
  bool shares_step(const std::string& node) const;
  void release_started();
  void renew(const std::string& node, Step& step);
  int gpus_on(const std::string& node) const;
  slurm::StepRequest request(const std::vector<std::string>& nodes) const;
  void start(const std::vector<std::string>& nodes);
  pid_t& pid_of(const std::vector<std::string>& nodes);
  void ended(const std::vector<std::string>& nodes, int status);
  void split_later(const std::vector<std::string>& nodes, int status);
  void start_later(const std::string& node, int status);
  bool none_is_left() const;
  void try_step();
  void tried(const Finished& trial);

  slurm::Cluster& cluster_;
  Setup setup_;
  Hooks hooks_;
  control::RealLoop& loop_;
  control::Worker logs_{loop_}, trials_{loop_}, signals_{loop_};
  Children children_;
  std::map<std::string, Step> steps_;               ///< by node
  std::map<std::string, SharedStep> shared_steps_;  ///< by the first of its nodes
  bool starts_ = true, stopped_ = false;
  bool heard_ = false;                   ///< an agent has answered
  std::optional<double> refused_since_;  ///< trial steps are refused, seconds of a steady clock
};

}  // namespace holdfast::launcher
