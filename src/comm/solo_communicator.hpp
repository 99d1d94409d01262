#pragma once
// The group of one: every operation is what it is for the only member. A real object, so that nobody asks for
// the size.
#include "src/comm/communicator.hpp"

namespace holdfast::comm {

class SoloCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(std::span<const Extent>) override {}
  void fold_leaves(std::span<const Extent> leaves, const Fold& fold) override;
  void exchange_nodes(std::span<const float* const> nodes, std::span<const int> arrays_of,
                      std::int64_t elements, const Fold& fold) override;
  void all_reduce(std::span<std::uint64_t>, Scalar) override {}
  void broadcast(std::span<std::byte>, int) override {}
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int) override { return std::make_unique<SoloCommunicator>(); }
  const Wire& wire() const override { return wire_; }
  void abort(std::string_view) noexcept override {}

 private:
  Wire wire_;
};

}  // namespace holdfast::comm
