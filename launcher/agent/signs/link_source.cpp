// The state and the rates of the links that training needs.
#include <fmt/format.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "launcher/agent/signs/sign_sources.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;
namespace {
bool is_absence(int error) { return error == ENODEV || error == ENOENT; }
}  // namespace

Links::Links(std::vector<std::string> interfaces, std::vector<std::string> devices, fs::path rdma,
             InterfaceState interface_state)
    : interfaces_(std::move(interfaces)),
      devices_(std::move(devices)),
      rdma_(std::move(rdma)),
      interface_state_(std::move(interface_state)) {}

void Links::note(std::vector<control::Sign>& out, const std::string& name, LinkState state) {
  if (state == LinkState::unknown) return;
  const auto known = up_.find(name);
  if (known == up_.end()) {
    // A cluster file may name a link that this node does not have; one that exists and is down stops
    // training.
    if (state == LinkState::absent) return;
    if (state == LinkState::down) out.push_back({"link_down", -1, 0, 0, name});
    up_[name] = state == LinkState::up;
    return;
  }
  const bool now = state == LinkState::up;
  if (now != std::exchange(known->second, now))
    out.push_back({now ? "link_up" : "link_down", -1, 0, 0, name});
}

std::vector<control::Sign> Links::poll() {
  std::vector<control::Sign> out;
  for (const auto& name : interfaces_) note(out, name, interface_state_(name));
  for (const auto& device : devices_) poll_ports(out, device);
  return out;
}

void Links::poll_ports(std::vector<control::Sign>& out, const std::string& device) {
  std::error_code error;
  std::map<std::string, LinkState> ports;
  for (fs::directory_iterator port(rdma_ / device / "ports", error), end; !error && port != end;
       port.increment(error)) {
    std::ifstream file(port->path() / "state");  // "4: ACTIVE"
    int state = 0;
    constexpr int active = 4;
    ports[device + " port " + port->path().filename().string()] = !(file >> state)  ? LinkState::unknown
                                                                  : state == active ? LinkState::up
                                                                                    : LinkState::down;
  }
  if (error && !is_absence(error.value())) return;
  const bool any_up =
      std::ranges::any_of(ports, [](const auto& port) { return port.second == LinkState::up; });
  for (const auto& [name, state] : ports)
    if (state == LinkState::up || !any_up || up_.contains(name))  // a second port may never be used
      note(out, name, state);
  for (const auto& [name, up] : std::map(up_))  // a device that has gone has no ports any more
    if (name.starts_with(device + " port ") && !ports.contains(name)) note(out, name, LinkState::absent);
}

LinkRates::LinkRates(std::vector<std::string> interfaces, std::vector<std::string> devices, fs::path sys)
    : interfaces_(std::move(interfaces)), devices_(std::move(devices)), sys_(std::move(sys)) {}

/// Of the links that are up, Mbit/s. Virtual ones have none.
std::map<std::string, double> LinkRates::read() const {
  std::map<std::string, double> rates;
  for (const auto& name : interfaces_) {
    std::ifstream file(sys_ / "class/net" / name / "speed");
    double mbit_s = 0;
    if (file >> mbit_s && mbit_s > 0) rates[name] = mbit_s;
  }
  const fs::path rdma = sys_ / "class/infiniband";
  for (const auto& device : devices_.empty() ? files::list(rdma) : devices_)
    for (const auto& port : files::list(rdma / device / "ports")) {
      std::ifstream state(rdma / device / "ports" / port / "state"),  // "4: ACTIVE"
          rate(rdma / device / "ports" / port / "rate");              // "400 Gb/sec (4X NDR)"
      constexpr int active = 4;
      int is = 0;
      double gbit_s = 0;
      if (state >> is && is == active && rate >> gbit_s && gbit_s > 0)
        rates[device + " port " + port] = 1000 * gbit_s;
    }
  return rates;
}

std::vector<control::Sign> LinkRates::poll() {
  std::vector<control::Sign> out;
  const auto rates = read();
  double best = 0;  // of the named RDMA devices: all rails of a job wait for the slowest
  if (!devices_.empty())
    for (const auto& [name, rate] : rates)
      if (std::find(interfaces_.begin(), interfaces_.end(), name) == interfaces_.end())
        best = std::max(best, rate);
  for (const auto& [name, rate] : rates) {
    Link& link = links_[name];
    const bool is_interface = std::find(interfaces_.begin(), interfaces_.end(), name) != interfaces_.end();
    link.rate = std::max({link.rate, rate, is_interface ? 0 : best});
    link.below = rate < link.rate ? link.below + 1 : 0;
    if (link.below == polls_in_a_row)
      out.push_back(
          {"link_slow", -1, std::max<std::int64_t>(1, std::llround(100 * rate / link.rate)), 0,
           fmt::format("{} runs at {:g} Gb/s instead of {:g}", name, rate / 1000, link.rate / 1000)});
  }
  return out;
}

LinkState state_of_interface(const std::string& name) {
  struct ifreq request {};
  if (name.empty() || name.size() >= sizeof request.ifr_name) return LinkState::absent;
  std::memcpy(request.ifr_name, name.c_str(), name.size());
  const files::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return LinkState::unknown;
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0)
    return is_absence(errno) ? LinkState::absent : LinkState::unknown;
  return (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING) ? LinkState::up : LinkState::down;
}

}  // namespace holdfast::launcher
