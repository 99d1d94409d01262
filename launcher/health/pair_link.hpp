#pragma once
// The measured way between two nodes: a plain TCP connection whose ends have proved that they know the
// secret. Blocking, but never past a deadline.
#include <string>

#include "src/base/clock.hpp"
#include "src/base/files.hpp"
#include "src/control/secret.hpp"

namespace holdfast::launcher {

struct LinkPlan {
  std::int64_t bytes = 64 << 20;  ///< in each direction, at most
  double seconds = 0.3;  ///< in each direction, about: fewer bytes are sent when they would take longer
  Millis limit{4000};    ///< of the whole meeting; past it the link counts as dead
};
struct LinkResult {
  double bytes_s = 0;    ///< the slower direction
  double latency_s = 0;  ///< median of small round trips
  std::string why;       ///< when it did not work; the rest is then 0
};

/// Where partners come in; any free port of all interfaces.
class LinkPort {
 public:
  LinkPort();
  int port() const { return port_; }
  /// Waits for the one partner that is due and does what it asks. Words when nobody came, or it went wrong.
  /// Others who connect meanwhile (without the secret) are turned away.
  std::string serve(const control::Key& secret, Millis limit) const;

 private:
  files::Fd fd_;
  int port_ = 0;
};

LinkResult measure_link(const std::string& host, int port, const control::Key& secret,
                        const LinkPlan& plan = {});

/// This node's IPv4 address on an interface; "" when it has none.
std::string address_on(const std::string& interface);
/// The interface through which a host is reached, by the routing table; "" when it cannot be resolved.
std::string interface_towards(const std::string& host);

}  // namespace holdfast::launcher
