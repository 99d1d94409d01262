#include "src/cuda/comm/device_communicator.hpp"

#include <exception>
#include <random>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/comm/operation.hpp"
#include "src/cuda/comm/device_world.hpp"
#include "src/cuda/comm/nccl_communicator.hpp"
#include "src/cuda/comm/peer_communicator.hpp"

namespace holdfast::cuda {

using comm::Wire;
using tensor::DType;

namespace {

std::uint64_t mix(std::uint64_t digest, std::uint64_t word) {
  digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
  return digest ^ digest >> 29;
}

std::uint64_t random_key() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device() | 1;
}

class DeviceCommunicator final : public comm::Communicator {
 public:
  DeviceCommunicator(std::shared_ptr<DeviceWorld> world, std::unique_ptr<comm::Communicator> host,
                     std::string name, bool is_world)
      : world_(std::move(world)),
        host_(std::move(host)),
        name_(std::move(name)),
        is_world_(is_world),
        exceptions_at_start_(std::uncaught_exceptions()),
        one_each_(as_size(host_->size()), 1) {
    // The world has no group before it is used: hardly anybody does, and it would take memory and streams.
    if (!is_world_) make_group();
    quiet_words_ = host_->wire();
  }
  /// Waits for what was enqueued, except while an exception unwinds: then it is given up.
  ~DeviceCommunicator() override {
    if (group_) group_->finish(std::uncaught_exceptions() != exceptions_at_start_);
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  std::span<std::byte> symmetric_memory(std::int64_t bytes) override {
    expects(is_world_, "symmetric memory is asked for once, from the world");
    const Wire before = host_->wire();
    const auto memory = world_->allocate(*host_, bytes);
    keep_quiet_since(before);
    return memory;
  }

  Event all_gather(std::span<const Extent> tensors, const Event& after) override {
    check_extents(tensors, 0, true);
    const std::int64_t bytes = comm::sent_by_gather(tensors, rank(), size());
    BulkGroup& group = this->group();
    const Event event =
        group.all_gather(tensors, bytes, digest(Collective::all_gather, tensors, 0, {}), after);
    wire_.all_gather += bytes;
    return event;
  }

  Event ordered_reduce_scatter(std::span<const Extent> gradients, OrderedReducer& reducer,
                               const Event& after) override {
    check_extents(gradients, 0, false);
    const std::int64_t bytes = comm::sent_by_reduce_scatter(gradients, rank());
    const BulkGroup::Exchange call{Collective::ordered_reduce_scatter, gradients, one_each_, 0, &reducer};
    const Event event = exchange(call, bytes, after);
    wire_.ordered_reduce_scatter += bytes;
    return event;
  }

  Event exchange_partial_sums(std::span<const Extent> tensors, std::int64_t array_stride,
                              std::span<const int> sums_of, OrderedReducer& reducer,
                              const Event& after) override {
    check_extents(tensors, comm::reach_of_partial_sums(sums_of, array_stride, size()), false);
    const std::int64_t bytes = comm::sent_by_partial_sums(tensors, sums_of, rank());
    const BulkGroup::Exchange call{Collective::exchange_partial_sums, tensors, sums_of, array_stride,
                                   &reducer};
    const Event event = exchange(call, bytes, after);
    wire_.exchange_partial_sums += bytes;
    return event;
  }

  void all_reduce(std::span<std::uint64_t> words, comm::Scalar how) override {
    host_->all_reduce(words, how);
  }
  void broadcast(std::span<std::byte> bytes, int root) override { host_->broadcast(bytes, root); }
  void barrier() override { host_->barrier(); }

  std::unique_ptr<Communicator> split(int color, int key, std::string name) override {
    auto host = host_->split(color, key, name);
    return std::make_unique<DeviceCommunicator>(world_, std::move(host), std::move(name), false);
  }

  const Wire& wire() const override {
    wire_.all_reduce = host_->wire().all_reduce - quiet_words_.all_reduce;
    wire_.broadcast = host_->wire().broadcast - quiet_words_.broadcast;
    return wire_;
  }

  void abort(std::string_view why) noexcept override { host_->abort(why); }

 private:
  Event exchange(const BulkGroup::Exchange& call, std::int64_t bytes, const Event& after) {
    BulkGroup& group = this->group();
    return group.exchange(call, bytes, digest(call.kind, call.tensors, call.stride, call.arrays_of), after);
  }

  BulkGroup& group() {
    if (!group_) {
      const Wire before = host_->wire();
      make_group();
      keep_quiet_since(before);
    }
    return *group_;
  }

  void make_group() {
    const std::uint64_t mine[] = {static_cast<std::uint64_t>(world_->rank()), rank() == 0 ? random_key() : 0};
    const auto all = share(*host_, mine);
    GroupFacts facts{name_, all[1], {}, rank()};
    for (int member = 0; member < size(); ++member)
      facts.ranks.push_back(static_cast<int>(all[as_size(member) * 2]));
    if (world_->near(facts.ranks)) {
      group_ = std::make_unique<PeerGroup>(world_, *host_, std::move(facts));
      return;
    }
    if (world_->nccl == nullptr)
      throw Error(Exit::runtime, "GPUs of several nodes cannot reach each other", "this build has no NCCL",
                  "Use one node, or a build with NCCL");
    group_ = std::make_unique<NcclGroup>(world_, *host_, std::move(facts));
  }

  /// What set-up says is not counted.
  void keep_quiet_since(const Wire& before) {
    quiet_words_.all_reduce += host_->wire().all_reduce - before.all_reduce;
    quiet_words_.broadcast += host_->wire().broadcast - before.broadcast;
  }

  void check_extents(std::span<const Extent> tensors, std::int64_t behind, bool whole_parts) const {
    for (const Extent& tensor : tensors) {
      expects(tensor.part * size() >= tensor.elements && tensor.part >= 0, "parts that cover the tensor");
      if (size() == 1 || tensor.elements == 0) continue;
      const std::int64_t elements = whole_parts ? tensor.part * size() : tensor.elements;
      expects(world_->contains(tensor.data, (elements + behind) * bytes_of(tensor.type)),
              "tensors of a collective lie in symmetric memory");
    }
  }

  /// Of what is equal on all members.
  std::uint64_t digest(Collective kind, std::span<const Extent> tensors, std::int64_t stride,
                       std::span<const int> arrays_of) const {
    std::uint64_t what = mix(static_cast<std::uint64_t>(kind) + 1, static_cast<std::uint64_t>(stride));
    for (const Extent& tensor : tensors) {
      if (size() > 1 && tensor.elements > 0)
        what = mix(what, static_cast<std::uint64_t>(static_cast<const std::byte*>(tensor.data) -
                                                    world_->memory().data()));
      what = mix(mix(what, static_cast<std::uint64_t>(tensor.elements)),
                 static_cast<std::uint64_t>(tensor.part) << 8 | static_cast<std::uint64_t>(tensor.type));
    }
    for (int count : arrays_of) what = mix(what, static_cast<std::uint64_t>(count));
    return what;
  }

  const std::shared_ptr<DeviceWorld> world_;
  const std::unique_ptr<comm::Communicator> host_;
  const std::string name_;
  const bool is_world_;
  const int exceptions_at_start_;
  const std::vector<int> one_each_;
  std::unique_ptr<BulkGroup> group_;
  Wire quiet_words_;  // of the host's communicator that the caller never asked for
  mutable Wire wire_;
};

}  // namespace

std::unique_ptr<comm::Communicator> make_device_communicator(std::unique_ptr<comm::Communicator> host,
                                                             Runtime& runtime, Nccl* nccl, Watch& watch,
                                                             const CommunicatorOptions& options) {
  auto world = std::make_shared<DeviceWorld>(*host, runtime, nccl, watch, options);
  return std::make_unique<DeviceCommunicator>(std::move(world), std::move(host), "the world", true);
}

}  // namespace holdfast::cuda
