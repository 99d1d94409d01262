#pragma once
// The loop of a simulated process: timers in virtual time, work that takes some of it, connections of the
// simulated network. What happens while the process is stopped happens when it goes on, what it sends in the
// midst of a callback, too; of a dead one nothing happens.
#include "src/control/channel.hpp"
#include "tests/sim/network.hpp"

namespace holdfast::sim {

class World;

class VirtualLoop final : public control::Loop {
 public:
  VirtualLoop(World& world, ProcessPtr process) : world_(world), process_(std::move(process)) {}

  Clock::time_point now() const override;
  std::function<double()> unix_clock() const override;
  double longest_turn() override { return 0; }
  void post(std::function<void()> work) override;
  [[nodiscard]] Handle after(Millis delay, std::function<void()> work) override;
  [[nodiscard]] Handle every(Millis period, std::function<void()> work) override;
  std::unique_ptr<Thread> thread(ThreadEnd end) override;
  control::ChannelPtr dial(control::Call call) override;
  [[nodiscard]] Handle listen(control::Port port) override;

 private:
  World& world_;
  ProcessPtr process_;
};

}  // namespace holdfast::sim
