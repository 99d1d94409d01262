#include "launcher/supervise/node_list.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace holdfast::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t max_of_why = 200;  // bytes: the answer about all nodes is one message

}  // namespace

std::string node_list(const Roster& roster, const RunState& state, const std::vector<int>& placement,
                      const std::vector<ListedNode>& nodes) {
  json out = json::array();
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    const auto& [view, why, heard_s, ranks] = nodes[n];
    const auto& known = roster.nodes[n];
    const auto failures = state.failures.find(known.name);
    const auto past = state.pasts.find(known.name);
    const auto slot = std::find(placement.begin(), placement.end(), n);
    const bool lost = state.lost.contains(known.name), placed = slot != placement.end();
    out.push_back({{"node", known.name},
                   {"role", state.evicted.contains(known.name)    ? "evicted"
                            : lost                                ? "lost"
                            : placed                              ? "active"
                            : state.suspects.contains(known.name) ? "suspect"
                                                                  : "spare"},
                   {"slot", placed && !lost ? slot - placement.begin() : -1},
                   {"scalable_unit", known.scalable_unit},
                   {"batch_host", n == roster.batch_host},
                   {"fitness", name_of(view.fitness)},
                   {"why", why.substr(0, max_of_why)},
                   {"numerics_agree", view.numerics_agree},
                   {"failures", failures == state.failures.end() ? 0 : failures->second},
                   {"past_failures", known.past_failures},
                   {"record", past == state.pasts.end() ? "" : past->second.in_words(state.last_at)},
                   {"heard_s", heard_s ? json(std::round(*heard_s * 10) / 10) : json(nullptr)}});
    if (ranks && !lost) out.back().update({{"step", ranks->step}, {"phases", ranks->phases}});
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);  // a character may be cut in two
}

}  // namespace holdfast::launcher
