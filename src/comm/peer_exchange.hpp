#pragma once
// Large pieces of state between ranks, beside or before training: what a replaced rank pulls from those that
// have it, and partner copies. By UCX over the network that the plan names; between ranks of a node through
// its memory.
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/base/clock.hpp"
#include "src/comm/communicator.hpp"

namespace holdfast::comm {

/// One of many; `tag` tells apart what goes between the same two ranks, the same number on both sides. Below
/// 2^32.
struct PieceOut {
  int to = 0;
  std::uint64_t tag = 0;
  std::span<const std::byte> bytes;
};
struct PieceIn {
  int from = 0;
  std::uint64_t tag = 0;
  std::span<std::byte> bytes;  ///< exactly what is sent
};

/// Of one run(), on this rank.
struct ExchangeRate {
  std::int64_t sent = 0, received = 0;  ///< bytes
  double seconds = 0;
};

class PeerExchange {
 public:
  virtual ~PeerExchange() = default;
  /// Sends and receives all of it, in any order; empty lists return at once. Not collective: only those that
  /// have something for each other take part. One call at a time per object. Throws Error (runtime) that
  /// names the rank it waited for when `deadline` passes or a peer is gone; the object is of no use
  /// afterwards.
  virtual ExchangeRate run(std::span<const PieceOut> out, std::span<const PieceIn> in,
                           const Deadline& deadline) = 0;
  /// For people: "tcp/eth0", "rc_mlx5/mlx5_0:1, shared memory inside the node"; "": not known.
  virtual std::string describe() const = 0;
};

struct ExchangeOptions {
  /// Device, as UCX names it ("mlx5_0:1", "eth0"); "": any but loopback. One that is not there is an Error
  /// (usage) that lists those that are.
  std::string network;
  /// A rank that has begun to send or to take in a run() and then is silent for so long is an Error before
  /// the deadline.
  std::chrono::milliseconds limit{60'000};
  /// false: as if no two ranks shared a node. For tests and measurements.
  bool shared_memory = true;
};

/// Collective over `world`, which carries the addresses. A world of one sends to nobody.
std::unique_ptr<PeerExchange> open_exchange(Communicator& world, const ExchangeOptions& options);

}  // namespace holdfast::comm
