#pragma once
// The node that a serving agent runs on.
#include "launcher/agent/daemon/node_check.hpp"
#include "launcher/agent/mover/mover.hpp"
#include "launcher/agent/ranks/children.hpp"
#include "launcher/agent/ranks/node_system.hpp"
#include "launcher/agent/ranks/scratch.hpp"
#include "launcher/supervise/roster.hpp"

namespace holdfast::launcher {

class LinuxNode final : public NodeSystem {
 public:
  /// `local_level`: its folder; empty: there is none. `guardian`: the pid of the agent's; 0: there is none.
  LinuxNode(control::RealLoop& loop, RunDir run, Scratch scratch, std::filesystem::path local_level,
            pid_t guardian, const config::RunConfig& config, const config::ClusterFacts& cluster,
            const Roster& roster, const control::Key& secret);

  pid_t start(Command command, ChildHooks hooks) override;
  void watch(pid_t pid, std::function<void()> ended) override { children_.watch(pid, std::move(ended)); }
  bool awaits(pid_t pid) const override { return children_.awaits(pid); }
  bool is_guardians(pid_t pid) const override;
  bool signal(pid_t pid, int signal) override;
  std::vector<RunProcess> processes(bool orphans) const override;
  std::optional<double> cpu_seconds_of(pid_t pid) const override { return children_.cpu_seconds_of(pid); }
  std::vector<Leftover> processes_of_rank(int rank, int attempt) const override {
    return launcher::processes_of_rank(run_, node_, rank, attempt);
  }
  std::optional<ProcessFacts> process(pid_t pid) const override { return process_facts(pid); }
  [[nodiscard]] control::Loop::Handle stacks(pid_t pid, const std::filesystem::path& log,
                                             std::function<void(std::string)> done) override;
  [[nodiscard]] control::Loop::Handle why_left(std::vector<RunProcess> left,
                                               std::function<void(std::string)> done) override;
  bool look_outside(int attempt, std::vector<WatchedRank> ranks,
                    std::function<void(const Growths&)> then) override {
    return outside_.look(attempt, std::move(ranks), std::move(then));
  }
  void remove_flight_records(int attempt) override;
  Mover* mover() override { return mover_.get(); }
  int free_port(int first) const override;
  void check(bool numerics, std::function<void(const control::NodeHealth&)> then) override {
    checker_.check(numerics, std::move(then));
  }
  void replace_agent() override;
  void tell_guardian(bool over) override;
  void inject(const control::Inject& fault) override;

 private:
  control::RealLoop& loop_;
  RunDir run_;
  Scratch scratch_;
  std::string node_;
  pid_t guardian_;
  std::filesystem::path local_level_;
  std::unique_ptr<Mover> mover_;
  Children children_;
  std::map<pid_t, RunProcess> beginning_;  ///< what becomes of processes: by it they can be ended before
  NodeChecker checker_;
  OutsideLook outside_;
};

}  // namespace holdfast::launcher
