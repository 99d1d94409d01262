#include "launcher/plan/rank_work.hpp"

#include <algorithm>

#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {
namespace {

constexpr int token_bytes = 4;           // at most
constexpr int bytes_each = 3 * 4;        // of a parameter: gathered twice, its gradient once, 4 bytes at most
constexpr double fastest_share_s = 1e9;  // bytes per second: no rank alone reaches the whole file system's

double share_of(double whole_s, int world) { return std::min(whole_s / world, fastest_share_s); }

}  // namespace

RankWork rank_work(const Plan& plan, const config::RunConfig& config, const config::ModelShape& model,
                   const config::ClusterFacts& facts) {
  if (!config::promises_of(config.rank).trains_as_set) return {};
  const int world = std::max(1, plan.world());
  const auto& state = plan.memory.state;
  const double tokens = 1.0 * plan.micro_batch * plan.sequence;
  const double products = 2.0 * static_cast<double>(plan.parameters);
  const double attention = 4.0 * model.layers * static_cast<double>(model.query_width()) *
                           plan.sequence;  // scores, and their sums
  RankWork out;
  out.restored = state.parameters + state.copies + state.optimizer + state.frozen;
  out.saved = plan.checkpoint_bytes / world;
  out.tokens = std::int64_t{token_bytes} * plan.micro_batch * plan.sequence;
  out.sent = world > 1 ? bytes_each * plan.parameters : 0;
  out.state = state.total();
  out.operations = 4 * tokens * (products + attention);  // backward twice, and forward again
  out.peers = world - 1;
  out.read_s = share_of(facts.storage_read_bytes_s, world);
  out.written_s = share_of(facts.storage_write_bytes_s, world);
  out.gpu = facts.gpu != "none" && config.train.device != config::Device::cpu;
  out.patience_s = config.checkpoint.read_patience_s;
  return out;
}

}  // namespace holdfast::launcher
