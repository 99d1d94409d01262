#include "src/train/state/state_digest.hpp"

#include <utility>

namespace holdfast::train {
namespace {

StateDigest sum_of(std::vector<std::uint64_t> partial, const checkpoint::State& owned,
                   comm::Communicator& world) {
  StateDigest out{std::move(partial), 0};
  world.all_reduce(out.tensors, comm::Scalar::sum);
  out.state = checkpoint::state_digest(owned.tensors, out.tensors);
  return out;
}

}  // namespace

StateDigest digest_state(const checkpoint::State& owned, comm::Communicator& world) {
  return sum_of(checkpoint::partial_digests(owned), owned, world);
}

StateDigest digest_state(const checkpoint::State& owned, StateWindow& window, comm::Communicator& world) {
  return sum_of(window.partial_digests(owned), owned, world);
}

}  // namespace holdfast::train
