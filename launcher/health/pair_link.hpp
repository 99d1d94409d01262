#pragma once
// Measures the connection between two nodes: plain TCP, after both ends have proved that they know the
// secret. Blocks, but never longer than a deadline.
#include <string>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/control/secret.hpp"

namespace holdfast::launcher {

struct LinkPlan {
  std::int64_t bytes = 64 << 20;  ///< in each direction, at most
  double seconds = 0.3;  ///< in each direction, about: fewer bytes are sent when they would take longer
  Millis limit{4000};    ///< of the whole measurement; after it the link counts as dead
};
struct LinkResult {
  double bytes_s = 0;    ///< the slower direction
  double latency_s = 0;  ///< median of small round trips
  std::string why;       ///< why it failed; the rest is then 0
};

/// Listens for partners, on any free port of all interfaces.
class LinkPort {
 public:
  LinkPort();
  int port() const { return port_; }
  /// Waits for the one partner that is expected and serves its requests. Returns an error when none came or
  /// it failed. Others that connect meanwhile (without the secret) are refused.
  std::string serve(const control::Key& secret, Millis limit) const;

 private:
  files::Fd fd_;
  int port_ = 0;
};

LinkResult measure_link(const std::string& host, int port, const control::Key& secret,
                        const LinkPlan& plan = {});

/// This node's address on an interface, of IPv4 if it has one; "" when it has none.
std::string address_on(const std::string& interface);
/// The interface through which a host is reached, by the routing table; "" when it cannot be resolved.
std::string interface_towards(const std::string& host);

}  // namespace holdfast::launcher
