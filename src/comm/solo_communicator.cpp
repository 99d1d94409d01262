#include "src/comm/solo_communicator.hpp"

#include <algorithm>
#include <array>

#include "src/base/error.hpp"

namespace holdfast::comm {
namespace {
constexpr std::size_t most_nodes = 64;  // a counter over int lanes never holds more
}  // namespace

void SoloCommunicator::fold_leaves(std::span<const Extent> leaves, const Fold& fold) {
  for (std::size_t t = 0; t < leaves.size(); ++t)
    for (std::int64_t at = 0; at < leaves[t].elements; at += largest_fold) {
      const float* source = leaves[t].data + at;
      fold(static_cast<int>(t), at, std::min(largest_fold, leaves[t].elements - at), {&source, 1});
    }
}

void SoloCommunicator::exchange_nodes(std::span<const float* const> nodes, std::span<const int> arrays_of,
                                      std::int64_t elements, const Fold& fold) {
  expects(arrays_of.size() == 1 && nodes.size() == static_cast<std::size_t>(arrays_of[0]),
          "one member, its own nodes");
  expects(nodes.size() <= most_nodes, "more tree nodes than lanes can leave");
  std::array<const float*, most_nodes> sources{};
  for (std::int64_t at = 0; at < elements; at += largest_fold) {
    for (std::size_t k = 0; k < nodes.size(); ++k) sources[k] = nodes[k] + at;
    fold(0, at, std::min(largest_fold, elements - at), {sources.data(), nodes.size()});
  }
}

}  // namespace holdfast::comm
