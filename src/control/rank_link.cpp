#include "src/control/rank_link.hpp"

#include "src/control/agent_link.hpp"

namespace holdfast::control {
namespace {

/// Bare mode: there is no agent.
class NoLink final : public RankLink {
 public:
  bool supervised() const override { return false; }
  void progress(std::int64_t, Phase) override {}
  void computed(double) override {}
  void waited(const Waits&) override {}
  void restored(const Restored&) override {}
  void doubt(std::int64_t, const std::vector<int>&, const std::string&, const std::string&) override {}
  void vote(std::int64_t, bool, const std::string&, double) override {}
  bool wait_commit(std::int64_t, const Deadline&) override { return false; }
  std::optional<Drain> take_drain() override { return std::nullopt; }
  bool paused() const override { return false; }
  std::optional<Injection> take_injection() override { return std::nullopt; }
  void finished(const std::optional<FinalState>&) override {}
  void failed(int, const std::string&) noexcept override {}
};

}  // namespace

std::unique_ptr<RankLink> make_rank_link(const std::optional<RankEnv>& place) {
  if (!place || place->agent_socket.empty()) return std::make_unique<NoLink>();
  return make_agent_link(*place);
}

}  // namespace holdfast::control
