#include "src/comm/small_exchanges.hpp"

#include <bit>

namespace holdfast::comm {

std::vector<SmallExchange> small_exchanges(int nodes, int here) {
  const int doubling = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)));
  if (here >= doubling) return {{here - doubling, true, true, true}};
  std::vector<SmallExchange> out;
  const bool has_other = here + doubling < nodes;
  if (has_other) out.push_back({here + doubling, false, true, false});
  for (int bit = 1; bit < doubling; bit *= 2) out.push_back({here ^ bit, true, true, false});
  if (has_other) out.push_back({here + doubling, true, false, false});
  return out;
}

}  // namespace holdfast::comm
