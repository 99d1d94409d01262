#pragma once
// The plain message form: non-blocking point-to-point in rounds, double-buffered, fp32 sums in canonical
// order on the receiving side. MPI's own reductions are never used for floats: their order depends on the
// world.
#include <mpi.h>

#include <chrono>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"

namespace holdfast::comm {

class MpiCommunicator final : public Communicator {
 public:
  /// Owns `group`. `name` is for error messages.
  MpiCommunicator(MPI_Comm group, std::string name, std::chrono::milliseconds limit);
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(std::span<const Extent> tensors) override;
  void fold_leaves(std::span<const Extent> leaves, const Fold& fold) override;
  void exchange_nodes(std::span<const float* const> nodes, std::span<const int> arrays_of,
                      std::int64_t elements, const Fold& fold) override;
  void all_reduce(std::span<std::uint64_t> words, Scalar how) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  const Wire& wire() const override { return wire_; }
  void abort(std::string_view why) noexcept override;

 private:
  /// One tensor of an exchange: this rank's arrays (each `elements` long).
  struct Contribution {
    std::span<const float* const> arrays;
    std::int64_t elements = 0;
  };
  /// Offsets [from, to) of every member's part of one tensor: the smallest thing that travels.
  struct Item {
    int tensor = 0;
    std::int64_t from = 0, to = 0, inbox = 0;
  };
  void exchange(std::span<const Contribution> tensors, std::span<const int> arrays_of, const Fold& fold,
                const char* operation, std::int64_t& sent);
  void cut_into_rounds(std::span<const Contribution> tensors, std::int64_t round_elements);
  void post(int round, std::span<const Contribution> tensors, std::span<const int> arrays_of, int parity,
            std::int64_t& sent);
  void hand_over(int round, std::span<const Contribution> tensors, std::span<const int> arrays_of, int parity,
                 const Fold& fold);
  const float* inbox(int parity, std::int64_t array, const Item& item) const;
  void wait(std::vector<MPI_Request>& requests, const char* operation);
  void wait(MPI_Request request, const char* operation);

  MPI_Comm group_;
  std::string name_;
  std::chrono::milliseconds limit_;
  int rank_ = 0, size_ = 1;
  Wire wire_;
  // Kept between calls, so that a step allocates nothing.
  std::vector<MPI_Request> requests_[2];
  std::vector<float> inbox_[2];
  std::vector<Item> items_;
  std::vector<std::size_t> rounds_;  // round i is items [rounds_[i], rounds_[i + 1])
  std::int64_t round_elements_ = 0;
  std::vector<const float*> sources_, leaf_pointers_;
  std::vector<Contribution> contributions_;
  std::vector<int> one_each_;
};

}  // namespace holdfast::comm
