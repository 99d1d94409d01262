#pragma once
// SLURM, which answers late, wrongly or not at all.
#include "tests/sim/world.hpp"
#include "tests/slurm/fake_cluster.hpp"

namespace holdfast::sim {

class Slurm final : public slurm::FakeCluster {
 public:
  using Limit = std::chrono::milliseconds;
  explicit Slurm(World& world) : FakeCluster("n[0-9]"), world_(world) { add_job(7, "run", "n[0-9]"); }

  void ping(Limit limit) override { world_.ask_slurm(limit); }
  std::optional<slurm::Job> job(slurm::JobId id, Limit limit) override {
    world_.ask_slurm(limit);
    auto answer = FakeCluster::job(id, limit);
    if (!world_.slurm_is_wrong || !answer) return answer;
    switch (world_.random.below(3)) {
      case 0:
        return std::nullopt;
      case 1:
        answer->state = slurm::JobState::finished;
        break;
      default:
        answer->end_time = world_.unix_now(0) + world_.random.between(-1e4, 1e4);
    }
    return answer;
  }
  void cancel(slurm::JobId id, Limit limit) override {
    world_.ask_slurm(limit);
    FakeCluster::cancel(id, limit);
    world_.job_is_ended();
  }
  void requeue(slurm::JobId id, Limit limit) override {
    world_.ask_slurm(limit);
    FakeCluster::requeue(id, limit);
    world_.job_is_ended();
  }

 private:
  World& world_;
};

}  // namespace holdfast::sim
