#include "src/comm/ucx_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/error.hpp"

namespace holdfast::comm {
namespace {

constexpr std::string_view loopback = "lo";
/// What UCX calls the device of its transports inside a node.
constexpr std::string_view memory = "memory";

bool wanted(std::string_view device, std::string_view network) {
  return network.empty() ? device != loopback : device == network;
}

}  // namespace

UcxChoice choose_transports(std::span<const UcxTransport> found, const std::string& network,
                            bool shared_memory) {
  std::set<std::string> ways, devices, networks;
  bool streams = true;
  for (const auto& transport : found) {
    if (transport.kind == UcxTransport::Kind::network) {
      networks.insert(transport.device);
      if (!wanted(transport.device, network)) continue;
      devices.insert(transport.device);
      streams &= transport.way == "tcp";
    } else if (!shared_memory) {
      continue;
    }
    ways.insert(transport.way);
  }
  if (!network.empty() && devices.empty())
    throw Error(
        Exit::usage, fmt::format("the network device '{}' is not on this node", network),
        fmt::format("UCX sees {}", networks.empty() ? "none" : fmt::format("{}", fmt::join(networks, ", "))),
        "Name one of them in checkpoint.network, or leave it empty");
  if (ways.empty())
    throw Error(Exit::runtime, "there is no network for state between ranks", "UCX sees only loopback",
                "Name it in checkpoint.network if it is meant");
  return {fmt::format("{}", fmt::join(ways, ",")),
          devices.empty() ? "" : fmt::format("{}", fmt::join(devices, ",")), streams && !devices.empty()};
}

std::set<std::string> lanes_in(std::string_view endpoint_info) {
  // "#                 lane[0]:  1:tcp/eth0.0 md[1]      -> md[1]/tcp/sysdev[255] rma_bw#0 am am_bw#0 wireup"
  std::set<std::string> lanes;
  while (!endpoint_info.empty()) {
    const std::string_view line = endpoint_info.substr(0, endpoint_info.find('\n'));
    endpoint_info.remove_prefix(std::min(endpoint_info.size(), line.size() + 1));
    const std::size_t lane = line.find("lane["), name = line.find(':', line.find("]:", lane) + 2);
    if (lane == line.npos || name == line.npos) continue;
    std::string_view path = line.substr(name + 1);
    path = path.substr(0, path.find(' '));
    // Behind the last dot is the number of the path on a device that has several.
    if (path.find('/') != path.npos) lanes.emplace(path.substr(0, path.rfind('.')));
  }
  return lanes;
}

void refuse_other_lanes(const std::set<std::string>& lanes, const std::string& network) {
  for (const auto& lane : lanes) {
    const std::string_view device = std::string_view(lane).substr(lane.find('/') + 1);
    if (device.starts_with(memory) || wanted(device, network)) continue;
    throw Error(Exit::runtime, fmt::format("state goes over {}", lane),
                network.empty() ? std::string("loopback is no network between nodes")
                                : fmt::format("the plan names {}", network),
                "Is UCX_TLS or UCX_NET_DEVICES set?");
  }
}

std::string describe_lanes(const std::set<std::string>& lanes) {
  std::vector<std::string> names;
  bool node = false;
  for (const auto& lane : lanes)
    if (std::string_view(lane).substr(lane.find('/') + 1).starts_with(memory))
      node = true;
    else
      names.push_back(lane);
  if (node) names.emplace_back("shared memory inside the node");
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace holdfast::comm
