// The state and the rates of the links that training needs.
#include <fmt/format.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "launcher/agent/signs/sign_sources.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;

Links::Links(std::vector<std::string> interfaces, std::vector<std::string> devices, fs::path rdma,
             InterfaceState interface_up)
    : interfaces_(std::move(interfaces)),
      devices_(std::move(devices)),
      rdma_(std::move(rdma)),
      interface_up_(std::move(interface_up)) {}

void Links::note(std::vector<control::Sign>& out, const std::string& name, std::optional<bool> up) {
  const auto known = up_.find(name);
  if (known == up_.end()) {
    // A cluster file may name a link that this node does not have; one that exists and is down stops
    // training.
    if (!up) return;
    if (!*up) out.push_back({"link_down", -1, 0, 0, name});
    up_[name] = *up;
    return;
  }
  const bool now = up.value_or(false);
  if (now != std::exchange(known->second, now))
    out.push_back({now ? "link_up" : "link_down", -1, 0, 0, name});
}

std::vector<control::Sign> Links::poll() {
  std::vector<control::Sign> out;
  for (const auto& name : interfaces_) note(out, name, interface_up_(name));
  for (const auto& device : devices_) {
    std::error_code error;
    std::map<std::string, bool> ports;
    for (fs::directory_iterator port(rdma_ / device / "ports", error), end; !error && port != end;
         port.increment(error)) {
      std::ifstream file(port->path() / "state");  // "4: ACTIVE"
      int state = 0;
      constexpr int active = 4;
      if (file >> state) ports[device + " port " + port->path().filename().string()] = state == active;
    }
    const bool any_up = std::any_of(ports.begin(), ports.end(), [](const auto& port) { return port.second; });
    for (const auto& [name, up] : ports)
      if (up || !any_up || up_.contains(name)) note(out, name, up);  // a second port may never be used
    for (const auto& [name, up] : std::map(up_))  // a device that has gone has no ports any more
      if (name.starts_with(device + " port ") && !ports.contains(name)) note(out, name, std::nullopt);
  }
  return out;
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

std::optional<bool> interface_is_up(const std::string& name) {
  struct ifreq request {};
  if (name.empty() || name.size() >= sizeof request.ifr_name) return std::nullopt;
  std::memcpy(request.ifr_name, name.c_str(), name.size());
  const files::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return std::nullopt;
  return (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
}

}  // namespace holdfast::launcher
