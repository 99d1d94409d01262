#pragma once
// On which TCP ports agents listen.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::launcher {

/// An agent listens on the first of so many neighbouring ports that is free on its node. Those of two jobs
/// have none in common, unless their ids are a thousand apart.
inline constexpr int ports_per_agent = 8, highest_port = 65535;

/// Ports that a machine uses otherwise.
struct TakenPorts {
  std::vector<std::pair<int, int>>
      ephemeral;  ///< first and last of those that the kernel gives to connections
  std::vector<std::pair<int, int>> reserved;  ///< the same of those that the administrator keeps for services

  bool contain(int port) const;
};
/// Of this machine: ip_local_port_range and ip_local_reserved_ports in /proc/sys/net/ipv4, for IPv6 too.
/// Empty where there are no such files.
TakenPorts taken_ports();
/// The same from the texts of the two files.
TakenPorts taken_ports(const std::string& ephemeral, const std::string& reserved);

/// The first port of the agents of a job: of the ports that are free of both, if there are any.
int first_port(std::int64_t job, const TakenPorts& taken);

/// The ports of an agent in the order in which it tries them: those that its machine uses otherwise are last.
std::vector<int> ports_to_try(int first, int count, const TakenPorts& taken);
/// Those of the mover in the same agent: the same from the last on, so that who looks for an agent comes to
/// it first.
std::vector<int> mover_ports_to_try(int first, int count, const TakenPorts& taken);

}  // namespace holdfast::launcher
