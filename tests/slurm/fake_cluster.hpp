#pragma once
// A cluster in memory, for tests of the code above it: nodes fail when the test says so, time stands still.
#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "slurm/cluster.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/error.hpp"

namespace holdfast::slurm {

class FakeCluster : public Cluster {
 public:
  explicit FakeCluster(const std::string& hostlist) {
    for (const auto& name : expand(hostlist)) {
      Node node;
      node.name = node.address = name;
      node.state_text = "idle";
      node.usable = true;
      nodes_.push_back(node);
    }
  }

  // For tests: changes of the cluster.
  void controller(bool up) { up_ = up; }
  std::atomic<int> unanswered = 0;  ///< calls, since the controller was away
  static constexpr int gpus_per_node = 8;
  /// The reply to a submission is lost: submit() throws, but the job exists.
  void lose_next_submit_reply() { lose_reply_ = true; }
  /// A job appears, running on `nodes` (empty: pending).
  Job& add_job(JobId id, const std::string& name, const std::string& nodes, const std::string& script = {}) {
    Job job;
    job.id = id;
    job.name = name;
    job.nodes = expand(nodes);
    job.state = nodes.empty() ? JobState::pending : JobState::running;
    job.state_text = nodes.empty() ? "PENDING" : "RUNNING";
    if (!job.nodes.empty()) job.batch_host = job.nodes.front();
    next_ = std::max(next_, id + 1);
    scripts_[id] = script;
    return jobs_[id] = job;
  }
  void end_job(JobId id, const std::string& word) {
    jobs_.at(id).state = JobState::finished;
    jobs_.at(id).state_text = word;
  }
  void forget_job(JobId id) { jobs_.erase(id); }
  /// SLURM notices that a node is lost: the node is down, and its jobs have one node fewer.
  void lose_node(const std::string& name) {
    Node& node = at(name);
    node.state_text = "down*";
    node.usable = false;
    node.reason = "Not responding";
    for (auto& [id, job] : jobs_) std::erase(job.nodes, name);
  }
  void return_node(const std::string& name) {
    Node& node = at(name);
    node.state_text = "idle";
    node.usable = true;
    node.reason.clear();
  }

  std::map<std::string, JobId> tasks;  ///< of job arrays, by their names

  // For tests: the actions of the code under test.
  std::vector<Submission> submissions;
  std::vector<JobId> cancelled, requeued, signalled;
  std::map<JobId, std::vector<std::string>> excluded;
  std::map<JobId, std::string> comments;
  std::map<JobId, JobId> waits_for;
  std::set<int> processes;    ///< that SLURM knows of on a node
  std::set<JobId> preempted;  ///< SLURM requeues them itself

  std::string version(std::chrono::milliseconds) override { return "22.05.8"; }
  void ping(std::chrono::milliseconds) override { need_controller(); }
  JobId submit(const Submission& submission, std::chrono::milliseconds) override {
    need_controller();
    submissions.push_back(submission);
    const JobId id = next_;
    add_job(id, "job", "", submission.script.string());
    if (std::exchange(lose_reply_, false)) throw OutcomeUnknown("a test lost the reply");
    return id;
  }
  std::optional<Job> job(JobId id, std::chrono::milliseconds) override {
    need_controller();
    const auto it = jobs_.find(id);
    return it == jobs_.end() ? std::nullopt : std::optional<Job>(it->second);
  }
  std::vector<JobId> jobs_of_script(const std::filesystem::path& script, std::chrono::milliseconds) override {
    need_controller();
    std::vector<JobId> ids;
    for (const auto& [id, job] : jobs_)
      if (job.alive() && scripts_[id] == script) ids.push_back(id);
    return ids;
  }
  std::optional<std::filesystem::path> script_of_job(JobId id, std::chrono::milliseconds) override {
    need_controller();
    const auto it = jobs_.find(id);
    return it == jobs_.end() || !it->second.alive() ? std::nullopt
                                                    : std::optional<std::filesystem::path>(scripts_[id]);
  }
  std::vector<Node> nodes(const std::vector<std::string>& names, std::chrono::milliseconds) override {
    need_controller();
    std::vector<Node> asked;
    for (const auto& name : names) asked.push_back(at(name));
    return asked;
  }
  std::map<std::string, int> gpus(JobId id, std::chrono::milliseconds) override {
    need_controller();
    std::map<std::string, int> all;
    for (const auto& node : jobs_.at(id).nodes) all[node] = gpus_per_node;
    return all;
  }
  JobName called(JobId id, std::chrono::milliseconds) override { return id; }
  std::optional<JobId> number_of(const std::string& name, std::chrono::milliseconds) override {
    const auto task = tasks.find(name);
    return task == tasks.end() ? std::nullopt : std::optional(task->second);
  }
  void cancel(JobId id, std::chrono::milliseconds) override {
    need_controller();
    cancelled.push_back(id);
    if (jobs_.contains(id)) end_job(id, "CANCELLED");
  }
  void signal_steps(JobId id, std::string_view, int, std::chrono::milliseconds) override {
    need_controller();
    signalled.push_back(id);
  }
  std::set<int> processes_here(JobId, const std::string&, std::chrono::milliseconds) override {
    return processes;
  }
  void requeue(JobId id, std::chrono::milliseconds) override {
    need_controller();
    requeued.push_back(id);
    Job& job = jobs_.at(id);
    job.state = JobState::pending;
    job.state_text = "PENDING";
    job.nodes.clear();
    job.batch_host.clear();
  }
  bool requeues_at_its_end(JobId id, std::chrono::milliseconds) override {
    need_controller();
    return preempted.contains(id);
  }
  void wait_for(JobId id, JobId other, std::chrono::milliseconds) override {
    need_controller();
    waits_for[id] = other;
  }
  OtherNodes other_nodes(JobId id, std::chrono::milliseconds) override {
    need_controller();
    return {excluded[id], {nodes_}};
  }
  void exclude(JobId id, const std::vector<std::string>& nodes, std::chrono::milliseconds) override {
    need_controller();
    if (jobs_.at(id).state != JobState::pending) throw Error(Exit::runtime, "job is not pending");
    excluded[id] = nodes;
  }
  std::string comment(JobId id, std::chrono::milliseconds) override {
    need_controller();
    return comments[id];
  }
  void set_comment(JobId id, const std::string& text, std::chrono::milliseconds) override {
    need_controller();
    comments[id] = text;
  }
  Command step_command(const StepRequest& request) const override {
    Command command;
    command.argv = request.command;
    command.output = request.output;
    command.new_session = true;
    return command;
  }

 private:
  void need_controller() {
    if (up_) return;
    ++unanswered;
    throw Error(Exit::transient, "SLURM's controller does not answer", "a test took it away");
  }
  Node& at(const std::string& name) {
    for (auto& node : nodes_)
      if (node.name == name) return node;
    throw Error(Exit::usage, "SLURM knows no node called '" + name + "'");
  }

  std::vector<Node> nodes_;
  std::map<JobId, Job> jobs_;
  std::map<JobId, std::string> scripts_;
  JobId next_ = 1;
  std::atomic<bool> up_ = true;
  bool lose_reply_ = false;
};

}  // namespace holdfast::slurm
