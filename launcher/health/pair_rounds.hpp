#pragma once
// The network check of a whole allocation: the caller leads, every node runs a peer, and pairs of peers
// measure the connection between them, round by round.
//
// Leader and peers find each other through a folder that all of them see: `secret` (0600) and `leader.json`
// in it. Orders and results travel on sealed channels, the measured bytes on plain connections of their own
// (pair_link.hpp).
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launcher/health/finding.hpp"
#include "launcher/health/pair_link.hpp"
#include "launcher/health/pairs.hpp"

namespace holdfast::launcher {

struct RoundsPlan {
  int rounds = 0;                ///< at most; 0: all pairs up to 16 nodes, 6 rounds above
  Millis join{20000};            ///< peers that have not connected by then are left out
  Millis link{4000};             ///< of one measurement; after it the pair counts as cut off
  Millis limit{10 * 60 * 1000};  ///< of the whole check
};

struct NetworkResult {
  std::vector<std::string> nodes;   ///< that took part; pairs are indices into it
  std::vector<std::string> absent;  ///< never connected
  std::vector<PairResult> pairs;
  int rounds = 0;
  PairFindings findings;
};

/// Writes `leader.json` with `host` and a port into the folder, and leads the rounds. Throws Error when no
/// port is free.
NetworkResult lead_rounds(const std::filesystem::path& folder, const std::string& host,
                          const std::vector<std::string>& nodes, const RoundsPlan& plan);

/// Runs a peer; false when the leader was lost before the end. `address`: under which partners reach this
/// node.
bool follow_rounds(const std::filesystem::path& folder, const std::string& node, const std::string& address,
                   Millis limit = Millis{10 * 60 * 1000});

std::vector<Finding> network_findings(const NetworkResult& result);
/// A line for each pair, slowest first.
std::string network_text(const NetworkResult& result);
nlohmann::json network_json(const NetworkResult& result);

}  // namespace holdfast::launcher
