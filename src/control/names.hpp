#pragma once
// IP addresses of hosts, by their names.
#include <map>
#include <string>
#include <vector>

#include "src/control/loop.hpp"

namespace holdfast::control {

bool is_ip_address(const std::string& host);

struct LookedUp {
  std::vector<std::string> addresses;  ///< in the order in which the system prefers them
  std::string why;                     ///< there are none
};
/// May take as long as the servers of names take.
LookedUp look_up(const std::string& host);

/// The addresses of many hosts, looked up side by side. What is not known within `limit` is without an
/// answer. Loopback addresses are left out: a machine's own name often has one, which is of no use to others.
std::map<std::string, LookedUp> look_up_all(const std::vector<std::string>& hosts, Millis limit);

}  // namespace holdfast::control
