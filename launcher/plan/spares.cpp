#include "launcher/plan/spares.hpp"

#include <algorithm>

namespace holdfast::launcher {

std::vector<std::string> spread_spares(const std::vector<ScalableUnitNodes>& units, int count,
                                       const std::string& batch_host) {
  struct Giver {
    std::vector<std::string> left;
    int given = 0;
  };
  std::vector<Giver> givers;
  std::vector<std::string> spares;
  const auto give = [&](Giver& giver, std::vector<std::string>::iterator node) {
    spares.push_back(*node);
    giver.left.erase(node);
    ++giver.given;
  };
  for (const auto& unit : units) givers.push_back({unit.nodes, 0});
  for (auto& giver : givers) {
    const auto host = std::find(giver.left.begin(), giver.left.end(), batch_host);
    if (host != giver.left.end() && count > 0) give(giver, host);
  }
  while (static_cast<int>(spares.size()) < count) {
    // Fewest given first, then most left; the first unit of equal ones.
    const auto next = std::min_element(givers.begin(), givers.end(), [](const Giver& a, const Giver& b) {
      if (a.left.empty() != b.left.empty()) return b.left.empty();
      return a.given != b.given ? a.given < b.given : a.left.size() > b.left.size();
    });
    if (next == givers.end() || next->left.empty()) break;
    give(*next, std::prev(next->left.end()));
  }
  return spares;
}

}  // namespace holdfast::launcher
