#include "src/train/restore/restore_context.hpp"

#include "src/config/state_network.hpp"

namespace holdfast::train {

RestoreContext restore_context(const Setup& setup, Engine& engine, comm::Communicator& world) {
  const std::chrono::seconds limit(setup.config.supervise.step_s);
  const Place& place = setup.place;
  const int local_rank = place.agent ? place.agent->local_rank : place.rank % place.ranks_per_node;
  const auto open = [&setup, &world, local_rank] {
    comm::ExchangeOptions options;
    options.network = setup.cluster ? config::state_network(setup.config, *setup.cluster, local_rank)
                                    : setup.config.checkpoint.network;
    return comm::open_exchange(world, options);
  };
  return {engine.local_run(), engine.local(), open, limit};
}

}  // namespace holdfast::train
