#pragma once
// A node: its memory, its guardian, and what the production agent there starts, sees and ends. The processes
// that it starts are played: ranks (training.hpp) and PMIx servers, which say when their ranks may be
// started.
#include <map>
#include <memory>
#include <optional>

#include "launcher/agent/daemon/agent.hpp"
#include "tests/sim/loop.hpp"
#include "tests/sim/training.hpp"

namespace holdfast::sim {

class World;
class Node;

/// One agent process.
struct AgentProcess {
  AgentProcess(World& world, int node);
  void begin(World& world, Node& node);
  const launcher::Leader* leading() const { return agent->candidate().leading(); }
  bool begins_to_lead() const { return agent->candidate().leadership().leads() && !leading(); }

  ProcessPtr process;
  bool left = false;  ///< it knows that the run is over
  VirtualLoop loop;
  std::unique_ptr<launcher::Agent> agent;
};

class Node final : public launcher::NodeSystem {
 public:
  Node(World& world, int number);
  int number() const { return number_; }
  /// The file of signs that its agent will see, as in a drill.
  std::filesystem::path signs() const;

  bool powered = true;
  bool clears = true;  ///< its processes can be ended
  /// Processes that are started do what they are for; they do nothing, and ranks then end; none can be
  /// started; they wait for storage before they become their programs.
  enum class Starts { work, hang, fail, wait };
  Starts starts = Starts::work;
  std::unique_ptr<AgentProcess> agent;
  std::map<std::pair<int, int>, LocalCopy> local;

  void start_agent();
  void agent_dies();  ///< the guardian starts another one
  void power_off();
  void power_on();
  void let_end();  ///< processes that were killed and could not be ended

  /// Ranks whose processes live.
  std::vector<RankPtr> ranks() const;
  void rank_ends(const Rank& rank, int status);
  void pmix_ends(int status);

  // What the agent has of its node.
  pid_t start(Command command, launcher::ChildHooks hooks) override;
  void watch(pid_t pid, std::function<void()> ended) override;
  bool awaits(pid_t pid) const override { return watched_.contains(pid); }
  bool is_guardians(pid_t pid) const override;
  bool signal(pid_t pid, int signal) override;
  std::vector<launcher::RunProcess> processes(bool orphans) const override;
  std::optional<launcher::ProcessFacts> process(pid_t) const override { return std::nullopt; }
  [[nodiscard]] control::Loop::Handle stacks(pid_t pid, const std::filesystem::path& log,
                                             std::function<void(std::string)> done) override;
  [[nodiscard]] control::Loop::Handle why_left(std::vector<launcher::RunProcess> left,
                                               std::function<void(std::string)> done) override;
  bool look_outside(int, std::vector<launcher::WatchedRank>,
                    std::function<void(const launcher::Growths&)>) override {
    return true;
  }
  void remove_flight_records(int) override {}
  int free_port(int first) const override { return first; }
  void check(bool numerics, std::function<void(const control::NodeHealth&)> then) override;
  void replace_agent() override { agent_dies(); }
  void tell_guardian(bool) override {}
  void inject(const control::Inject&) override {}

 private:
  /// A process that an agent has started, until somebody has waited for it.
  struct Child {
    launcher::RunProcess facts;
    ProcessPtr process;
    ProcessPtr parent;    ///< the agent; dead: the guardian
    bool begins = false;  ///< it has not become its program
    bool killed = false;
    std::optional<int> status;
    RankPtr rank;
    std::shared_ptr<Link> pmix;
  };
  void becomes_its_program(pid_t pid, const Command& command, const launcher::ChildHooks& hooks);
  void serve_pmix(Child& server, const std::vector<std::string>& argv);
  void kill(pid_t pid, int status);
  void ends(pid_t pid, int status);
  void guardian_waits(pid_t pid);
  void call_back(pid_t pid);
  void in_agent(double seconds, std::function<void()> what);

  World& world_;
  int number_;
  launcher::Scratch scratch_;
  int next_pid_ = 2;
  std::map<pid_t, Child> children_;
  std::map<pid_t, std::function<void()>> watched_;   ///< by the present agent
  std::vector<std::unique_ptr<AgentProcess>> dead_;  ///< kept: their handlers may still be on the stack
};

}  // namespace holdfast::sim
