#pragma once
// What movers say to each other behind the handshake: one request on a connection, and its answers. Pure:
// text in, text out. docs/protocol.md ("Snapshot buffers") is the contract.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/agent/mover/seals.hpp"
#include "src/control/secret.hpp"

namespace holdfast::launcher {

/// What movers prove to each other: not the run's secret, since movers listen on ports of agents, and who
/// looks for an agent must not take a mover for one.
control::Key mover_key(const control::Key& secret);

/// Keep a copy of this state of a rank, whose attempt began with the state `base`.
struct PutRequest {
  int rank = 0;
  Seal seal;
  std::int64_t base_step = -1;
  int base_attempt = 0;
  bool operator==(const PutRequest&) const = default;
};
/// Send the state of a rank.
struct GetRequest {
  int rank = 0;
  std::int64_t step = -1;
  int attempt = 0;
  std::vector<std::string> have = {};  ///< buffers that need not be sent
  bool operator==(const GetRequest&) const = default;
};
using MoverRequest = std::variant<PutRequest, GetRequest>;

struct MoverConsent {
  bool here = false;         ///< to a put: the state is there already, so that no buffers are sent
  std::optional<Seal> seal;  ///< to a get: of the buffers that follow
  bool operator==(const MoverConsent&) const = default;
};

std::string to_text(const MoverRequest& request);
std::string to_text(const MoverConsent& consent);
std::string refusal_text(const std::string& why);

/// Both throw Error (transient) for what cannot be read; consent_of() also for a refusal, which it quotes.
MoverRequest request_of(std::string_view text);
MoverConsent consent_of(std::string_view text);

}  // namespace holdfast::launcher
