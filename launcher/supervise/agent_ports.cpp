#include "launcher/supervise/agent_ports.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "src/base/as_size.hpp"

namespace holdfast::launcher {

namespace {
// Below 20000 services have their ports; from 29500 on programs of torch meet.
struct Region {
  int first, last;
};
constexpr Region usual{20000, 29499}, others[] = {{30500, highest_port}, {10000, 19999}};

/// "1-5,7" or "1 5".
std::vector<std::pair<int, int>> ranges_of(std::string text, char from_to) {
  std::replace(text.begin(), text.end(), ',', '\n');
  std::istringstream lines(text);
  std::vector<std::pair<int, int>> out;
  for (std::string line; std::getline(lines, line);) {
    std::replace(line.begin(), line.end(), from_to, ' ');
    std::istringstream numbers(line);
    if (int first = 0; numbers >> first) {
      int last = first;
      numbers >> last;
      out.emplace_back(first, numbers ? last : first);
    }
  }
  return out;
}

std::string text_of(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The first ports of all agents that find room in a region.
void add_firsts(const Region& region, const TakenPorts& taken, std::vector<int>& out) {
  for (int first = region.first; first + ports_per_agent - 1 <= region.last; first += ports_per_agent) {
    bool free = true;
    for (int i = 0; i < ports_per_agent; ++i) free = free && !taken.contain(first + i);
    if (free) out.push_back(first);
  }
}

std::vector<int> ports_from(int first, int count) {
  std::vector<int> ports;
  for (int port = first; port < first + count && port <= highest_port; ++port) ports.push_back(port);
  return ports;
}

}  // namespace

bool TakenPorts::contain(int port) const {
  const auto holds = [port](const auto& range) { return range.first <= port && port <= range.second; };
  return std::any_of(ephemeral.begin(), ephemeral.end(), holds) ||
         std::any_of(reserved.begin(), reserved.end(), holds);
}

TakenPorts taken_ports(const std::string& ephemeral, const std::string& reserved) {
  return {ranges_of(ephemeral, '\t'), ranges_of(reserved, '-')};
}

TakenPorts taken_ports() {
  return taken_ports(text_of("/proc/sys/net/ipv4/ip_local_port_range"),
                     text_of("/proc/sys/net/ipv4/ip_local_reserved_ports"));
}

int first_port(std::int64_t job, const TakenPorts& taken) {
  std::vector<int> firsts;
  add_firsts(usual, taken, firsts);
  for (const auto& region : others)
    if (firsts.empty()) add_firsts(region, taken, firsts);
  if (firsts.empty()) add_firsts(usual, {}, firsts);  // the machine uses all of them
  return firsts[as_size(job) % firsts.size()];
}

std::vector<int> ports_to_try(int first, int count, const TakenPorts& taken) {
  std::vector<int> ports = ports_from(first, count);
  std::stable_partition(ports.begin(), ports.end(), [&](int port) { return !taken.contain(port); });
  return ports;
}

std::vector<int> mover_ports_to_try(int first, int count, const TakenPorts& taken) {
  std::vector<int> ports = ports_from(first, count);
  std::reverse(ports.begin(), ports.end());
  std::stable_partition(ports.begin(), ports.end(), [&](int port) { return !taken.contain(port); });
  return ports;
}

}  // namespace holdfast::launcher
