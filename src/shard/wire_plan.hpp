#pragma once
// Bytes that a rank sends in one optimizer step, as integers, before anything runs: equal to what the
// communicators count. Pure.
#include "src/comm/communicator.hpp"
#include "src/config/lane_plan.hpp"
#include "src/shard/layout.hpp"
#include "src/shard/policy.hpp"

namespace holdfast::shard {

using config::LanePlan;

/// One Wire per communicator of Groups.
struct WirePlan {
  comm::Wire gathers;     ///< all_gather: units, as often as the schedule says
  comm::Wire reductions;  ///< ordered_reduce_scatter: every unit, every micro-step
  comm::Wire
      replicas;  ///< exchange_partial_sums: partial sums; all_gather: the sums, or under HFSDP the parameters
  std::int64_t total() const { return gathers.total() + reductions.total() + replicas.total(); }
};
/// From publish() of one step to publish() of the next.
WirePlan wire_plan(const Layout& layout, const LanePlan& lanes, const Policy& policy);

}  // namespace holdfast::shard
