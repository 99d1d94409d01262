#include "src/comm/solo_communicator.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/units.hpp"

namespace holdfast::comm {

void SoloCommunicator::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

std::span<std::byte> SoloCommunicator::symmetric_memory(std::int64_t bytes) {
  expects(!memory_ && bytes >= 0, "symmetric memory is asked for once");
  const auto wanted = as_size(bytes), mapped = std::max<std::size_t>(wanted, 1);
  void* at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw system_error(fmt::format("no {} of memory", size_text(bytes)), errno,
                       "Use more ranks, or a smaller model?");
  memory_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(at), Unmap{mapped});
  return {memory_.get(), wanted};
}

Event SoloCommunicator::all_gather(std::span<const Extent>, const Event& after) {
  after.wait();
  return {};
}

Event SoloCommunicator::ordered_reduce_scatter(std::span<const Extent> gradients, OrderedReducer& reducer,
                                               const Event& after) {
  after.wait();
  reduce(gradients, 0, 1, reducer);
  return {};
}

Event SoloCommunicator::exchange_partial_sums(std::span<const Extent> tensors, std::int64_t array_stride,
                                              std::span<const int> sums_of, OrderedReducer& reducer,
                                              const Event& after) {
  expects(sums_of.size() == 1 && sums_of[0] >= 0, "a count of partial sums for the one member");
  after.wait();
  reduce(tensors, array_stride, sums_of[0], reducer);
  return {};
}

void SoloCommunicator::reduce(std::span<const Extent> tensors, std::int64_t array_stride, int arrays,
                              OrderedReducer& reducer) {
  sources_.resize(arrays);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    expects(tensors[t].part >= tensors[t].elements, "the only part is all of it");
    const std::int64_t size = bytes_of(tensors[t].type);
    for (std::int64_t at = 0; at < tensors[t].elements; at += largest_reduction) {
      for (int k = 0; k < arrays; ++k)
        sources_[k] = static_cast<const std::byte*>(tensors[t].data) + (at + k * array_stride) * size;
      reducer.reduce(inline_, static_cast<int>(t), at, std::min(largest_reduction, tensors[t].elements - at),
                     sources_);
    }
  }
}

std::unique_ptr<Communicator> SoloCommunicator::split(int, int, std::string) {
  return std::make_unique<SoloCommunicator>();
}

}  // namespace holdfast::comm
