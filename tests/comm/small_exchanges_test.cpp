// The exchanges of small collectives fit together, for any number of nodes.
#include "src/comm/small_exchanges.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace holdfast::comm {
namespace {

/// Nodes that bring numbers; messages between them arrive in order.
struct Nodes {
  explicit Nodes(int count) {
    for (int node = 0; node < count; ++node) {
      exchanges.push_back(small_exchanges(count, node));
      sums.push_back(std::uint64_t{1} << node % 64);
      wanted += sums.back();
    }
    next.resize(exchanges.size());
    posted.resize(exchanges.size());
  }
  /// True when `node` has gone on.
  bool step(int node) {
    if (next[node] == exchanges[node].size()) return false;
    const SmallExchange& exchange = exchanges[node][next[node]];
    if (exchange.sends && !posted[node]) {
      under_way[{node, exchange.node}].push_back(sums[node]);
      posted[node] = true;
      return true;
    }
    if (exchange.receives) {
      auto& come = under_way[{exchange.node, node}];
      if (come.empty()) return false;
      sums[node] = exchange.replaces ? come.front() : sums[node] + come.front();
      come.pop_front();
    }
    posted[node] = false;
    ++next[node];
    return true;
  }
  std::vector<std::vector<SmallExchange>> exchanges;
  std::vector<std::uint64_t> sums;
  std::uint64_t wanted = 0;
  std::vector<std::size_t> next;
  std::vector<bool> posted;
  std::map<std::pair<int, int>, std::deque<std::uint64_t>> under_way;
};

TEST(SmallExchanges, EveryNodeEndsWithTheSumOfAll) {
  for (int count = 1; count <= 130; ++count) {
    Nodes nodes(count);
    for (bool moved = true; moved;) {
      moved = false;
      for (int node = 0; node < count; ++node) moved |= nodes.step(node);
    }
    for (int node = 0; node < count; ++node) {
      EXPECT_EQ(nodes.next[node], nodes.exchanges[node].size()) << node << " of " << count << " waits";
      EXPECT_EQ(nodes.sums[node], nodes.wanted) << node << " of " << count;
    }
    for (const auto& [pair, left] : nodes.under_way)
      EXPECT_TRUE(left.empty()) << pair.first << " to " << pair.second << " of " << count;
  }
}

TEST(SmallExchanges, FewMessages) {
  const auto messages = [](int count) {
    int sent = 0;
    for (int node = 0; node < count; ++node)
      for (const auto& exchange : small_exchanges(count, node)) sent += exchange.sends;
    return sent;
  };
  EXPECT_EQ(messages(1), 0);
  EXPECT_EQ(messages(2), 2);
  EXPECT_EQ(messages(3), 4);
  EXPECT_EQ(messages(64), 384);
  EXPECT_EQ(messages(124), 504);
  EXPECT_EQ(messages(127), 510);
}

}  // namespace
}  // namespace holdfast::comm
