#include "launcher/health/check_network.hpp"
#include "src/base/files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
constexpr std::int64_t max_link_losses = 10;  ///< since boot; a good link loses none for months

struct Port {
  std::string device;
  bool up = false;
  double gbit_s = 0;
  std::string state;  ///< as text
  std::int64_t losses = 0;
  bool known = true;  ///< its state could be read
};

Port read_port(const Roots& roots, const std::string& device) {
  Port port{device, false, 0, "has no port", 0, true};
  const auto ports = roots.sys / "class/infiniband" / device / "ports";
  for (const auto& name : files::list(ports)) {
    const auto read = read_line(ports / name / "state");  // "4: ACTIVE"
    const std::string state = read.value_or("?");
    const std::string link = read_line(ports / name / "phys_state").value_or("?");  // "5: LinkUp"
    const bool up = state.starts_with("4:");
    port.losses += read_number(ports / name / "counters/link_downed").value_or(0);
    if (port.up && !up) continue;  // one port that is up is enough: a dual-port adapter may use one only
    port.up = up;
    port.known = read.has_value();
    port.gbit_s = leading_number(read_line(ports / name / "rate").value_or("")).value_or(0);
    port.state = up ? fmt::format("{:g} Gb/s", port.gbit_s) : fmt::format("is down ({}, {})", state, link);
  }
  return port;
}

std::set<std::string> named_devices(const Expected& expected) {
  std::set<std::string> names;
  if (expected.cluster)
    for (const auto& gpu : expected.cluster->gpus)
      if (!gpu.nic.empty()) names.insert(gpu.nic);
  return names;
}

struct TextList {
  std::string text;
  void add(const std::string& more) { text += (text.empty() ? "" : "; ") + more; }
};

}  // namespace

std::vector<Finding> check_rdma(const Roots& roots, const Expected& expected) {
  const auto present = files::list(roots.sys / "class/infiniband");
  const auto named = named_devices(expected);
  if (present.empty() && named.empty())
    return {{"nic.state", Fitness::unknown,
             "no RDMA device here and none named by a cluster file: not checked", ""}};
  const std::vector<std::string> devices =
      named.empty() ? present : std::vector<std::string>(named.begin(), named.end());
  TextList missing, down, unknown, slow, flapping;
  std::vector<Port> up;
  for (const auto& device : devices) {
    if (std::find(present.begin(), present.end(), device) == present.end()) {
      missing.add(device + " does not exist");
      continue;
    }
    const Port port = read_port(roots, device);
    if (!port.known)
      unknown.add(device);
    else if (!port.up)
      down.add(device + " " + port.state);
    else
      up.push_back(port);
    if (port.losses > max_link_losses)
      flapping.add(fmt::format("{} lost its link {} times", device, port.losses));
  }
  double best = 0;
  for (const auto& port : up) best = std::max(best, port.gbit_s);
  for (const auto& port : up)
    if (port.gbit_s < best)
      slow.add(fmt::format("{} runs at {}, others at {:g} Gb/s", port.device, port.state, best));

  std::vector<Finding> out;
  TextList bad = missing;
  if (!down.text.empty()) bad.add(down.text);
  if (!bad.text.empty())
    out.push_back({"nic.state", named.empty() ? Fitness::warning : Fitness::critical, bad.text,
                   "Is the cable plugged in, the switch port up and the subnet manager running?"});
  else if (!unknown.text.empty())
    out.push_back({"nic.state", Fitness::unknown, "the state cannot be read of " + unknown.text, ""});
  else
    out.push_back({"nic.state", Fitness::ok, fmt::format("{} RDMA devices up", up.size()), ""});
  // All rails of a job wait for the slowest, so a named device that is slow is as bad as one that is down.
  if (!slow.text.empty())
    out.push_back({"nic.rate", named.empty() ? Fitness::warning : Fitness::critical, slow.text,
                   "Replace the cable or transceiver; set the port's speed?"});
  else if (!up.empty())
    out.push_back({"nic.rate", Fitness::ok, fmt::format("{:g} Gb/s each", best), ""});
  if (!flapping.text.empty())
    out.push_back(
        {"nic.links", Fitness::warning, flapping.text + " since boot", "A bad cable or transceiver?"});
  return out;
}

std::vector<Finding> check_interface(const Roots& roots, const Expected& expected) {
  const auto net = roots.sys / "class/net";
  const std::string wanted = expected.cluster ? expected.cluster->control_interface : "";
  TextList up;
  for (const auto& name : files::list(net)) {
    if (wanted.empty() ? name == "lo" : name != wanted) continue;
    const bool carrier = read_number(net / name / "carrier").value_or(0) == 1;
    const auto speed = read_number(net / name / "speed").value_or(-1);  // Mbit/s; virtual ones have none
    const std::string rate = speed > 0 ? fmt::format(" at {:g} Gb/s", static_cast<double>(speed) / 1000) : "";
    if (carrier) up.add(name + rate);
    if (!carrier && name == wanted)
      return {{"net.control", Fitness::critical,
               name + " is " + read_line(net / name / "operstate").value_or("down") + ", without a carrier",
               "Agents connect through it: is the cable plugged in?"}};
  }
  if (!up.text.empty()) return {{"net.control", Fitness::ok, up.text, ""}};
  if (wanted.empty())
    return {
        {"net.control", Fitness::critical, "no network interface has a carrier", "Is the cable plugged in?"}};
  return {{"net.control", Fitness::critical, "there is no interface called " + wanted,
           "Correct control_interface in the cluster file?"}};
}

std::vector<Finding> check_pcie(const Roots& roots, const Expected& expected) {
  const auto named = named_devices(expected);
  std::map<std::string, std::filesystem::path> devices;
  for (const auto& name : files::list(roots.sys / "class/infiniband"))
    devices[name] = roots.sys / "class/infiniband" / name / "device";
  for (const auto& name : files::list(roots.sys / "class/nvme"))
    devices[name] = roots.sys / "class/nvme" / name / "device";
  TextList narrow;
  Fitness fitness = Fitness::warning;
  int seen = 0;
  for (const auto& [name, folder] : devices) {
    const auto now = read_number(folder / "current_link_width"),
               most = read_number(folder / "max_link_width");
    if (!now || !most || *now == 0 || *most == 0 || *most == 255)
      continue;  // virtual devices report 0 or 255
    ++seen;
    const auto speed = read_line(folder / "current_link_speed"), best = read_line(folder / "max_link_speed");
    if (*now < *most) {
      narrow.add(fmt::format("{} has {} of {} PCIe lanes", name, *now, *most));
      if (named.contains(name)) fitness = Fitness::critical;
    } else if (speed && best && leading_number(*speed).value_or(0) < leading_number(*best).value_or(0) &&
               named.contains(name)) {
      narrow.add(fmt::format("{} runs at {} of {}", name, *speed, *best));
    }
  }
  if (!narrow.text.empty())
    return {{"pcie.width", fitness, narrow.text, "Reseat the card; is it in the right slot?"}};
  if (seen == 0) return {{"pcie.width", Fitness::unknown, "no device reports its PCIe width", ""}};
  return {{"pcie.width", Fitness::ok, fmt::format("{} devices at full width", seen), ""}};
}

}  // namespace holdfast::launcher
