#pragma once
// Which of UCX's transports carry state, and whether they did: pure, without UCX. A transport is a way
// ("tcp", "rc_mlx5") over a device ("eth0", "mlx5_0:1"); inside a node the device is "memory".
#include <compare>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::comm {

struct UcxTransport {
  enum class Kind { network, node, itself };
  std::string way, device;
  Kind kind = Kind::network;
  auto operator<=>(const UcxTransport&) const = default;
};

/// Values of UCX's settings TLS and NET_DEVICES.
struct UcxChoice {
  std::string ways, devices;
  bool streams = false;  ///< over the network there is TCP alone
  bool operator==(const UcxChoice&) const = default;
};

/// The transports of `found` that go over `network` ("": over any device but loopback), and those inside the
/// node if `shared_memory`. An Error (usage) lists the devices when there is no such one.
UcxChoice choose_transports(std::span<const UcxTransport> found, const std::string& network,
                            bool shared_memory);

/// "way/device" of every lane in the text of ucp_ep_print_info.
std::set<std::string> lanes_in(std::string_view endpoint_info);

/// An Error (runtime) that names both when a lane goes over another device than `network` ("": than any but
/// loopback) and not inside the node.
void refuse_other_lanes(const std::set<std::string>& lanes, const std::string& network);

/// For people: "tcp/eth0, shared memory inside the node"; "": no lanes are known.
std::string describe_lanes(const std::set<std::string>& lanes);

}  // namespace holdfast::comm
