#include "src/train/state_digest.hpp"

namespace holdfast::train {

StateDigest digest_state(const checkpoint::State& owned, comm::Communicator& world) {
  StateDigest out;
  out.tensors = checkpoint::partial_digests(owned);
  world.all_reduce(out.tensors, comm::Scalar::sum);
  out.state = checkpoint::state_digest(owned.tensors, out.tensors);
  return out;
}

}  // namespace holdfast::train
