#include "src/comm/ucx_addresses.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/as_size.hpp"

namespace holdfast::comm {

std::vector<std::vector<std::byte>> share_addresses(Communicator& world, std::span<const std::byte> mine) {
  const auto size = as_size(world.size()), me = as_size(world.rank());
  // A sum in which each word has one contributor is a gather.
  std::vector<std::uint64_t> bytes(size);
  bytes[me] = mine.size();
  world.all_reduce(bytes, Scalar::sum);
  const std::size_t words = (*std::max_element(bytes.begin(), bytes.end()) + 7) / 8;
  std::vector<std::uint64_t> table(size * words);
  if (!mine.empty()) std::memcpy(table.data() + me * words, mine.data(), mine.size());
  world.all_reduce(table, Scalar::sum);
  std::vector<std::vector<std::byte>> addresses(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    const auto all = std::as_bytes(std::span(table).subspan(rank * words, words));
    addresses[rank].assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(bytes[rank]));
  }
  return addresses;
}

}  // namespace holdfast::comm
