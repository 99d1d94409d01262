#pragma once
// Whether the memory of a rank and of a node suffices for a plan, and if not, which settings make it suffice.
// Pure.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/config/cluster_facts.hpp"
#include "src/config/run_config.hpp"

namespace holdfast::launcher {

struct Plan;

/// Which memory does not suffice.
enum class Limit { rank, node, shm };

/// Error (impossible) without a hint: memory does not suffice.
class DoesNotFit : public Error {
 public:
  DoesNotFit(Limit limit, const std::string& problem, const std::string& why)
      : Error(Exit::impossible, problem, why), limit_(limit) {}
  Limit limit() const { return limit_; }

 private:
  Limit limit_;
};

/// Throws DoesNotFit, naming every part, when what is needed exceeds what the cluster file says there is.
/// `plan` is complete up to its host memory. Of another program than ours nothing is known.
void check_fit(const Plan& plan, const config::RunConfig& config, const config::ClusterFacts& facts);

/// Bytes that a rank needs at its capacity's place: on CPUs with its share of the snapshots in /dev/shm.
std::int64_t needed_of_rank(const Plan& plan, const config::ClusterFacts& facts);

/// What the settings would plan; nothing: they are refused, or do not fit.
using TryPlan = std::function<std::optional<Plan>(const config::RunConfig&)>;

/// A sentence that names the smallest change that fits, with its numbers. Changes are tried one by one, those
/// that cost least first: activation checkpointing, smaller micro-batches, moments in host memory (or out of
/// it), sharding over more ranks, no prefetching, no 8-bit copies of weights, no copies on other nodes, no
/// local level. Where none suffices alone, several together in the same order. Then the same with more nodes,
/// and then with fewer lanes and shorter sequences. `config`: resolved.
std::string smallest_change(const DoesNotFit& refused, const config::RunConfig& config,
                            const config::ClusterFacts& facts, const TryPlan& try_plan);

}  // namespace holdfast::launcher
