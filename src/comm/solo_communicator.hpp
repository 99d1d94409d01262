#pragma once
// The group of one: every operation is what it is for the only member, done by the caller's thread before the
// call returns. A real object, so that nobody asks for the size.
#include <vector>

#include "src/comm/communicator.hpp"

namespace holdfast::comm {

class SoloCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::span<std::byte> symmetric_memory(std::int64_t bytes) override;
  Event all_gather(std::span<const Extent> tensors, const Event& after = {}) override;
  Event ordered_reduce_scatter(std::span<const Extent> gradients, OrderedReducer& reducer,
                               const Event& after = {}) override;
  Event exchange_partial_sums(std::span<const Extent> tensors, std::int64_t array_stride,
                              std::span<const int> sums_of, OrderedReducer& reducer,
                              const Event& after = {}) override;
  void all_reduce(std::span<std::uint64_t>, Scalar) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int, std::string) override;
  const Wire& wire() const override { return wire_; }
  void abort(std::string_view) noexcept override {}

 private:
  void reduce(std::span<const Extent> tensors, std::int64_t array_stride, int arrays,
              OrderedReducer& reducer);

  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Unmap> memory_;
  std::vector<const void*> sources_;
  tensor::InlineStream inline_;
  Wire wire_;
};

}  // namespace holdfast::comm
