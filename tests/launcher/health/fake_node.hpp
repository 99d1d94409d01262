#pragma once
// A node made of files: the parts of /sys and /proc that the checks read, in a folder of the test's own.
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "launcher/health/check_input.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher::test {

namespace fs = std::filesystem;

class FakeNode {
 public:
  FakeNode() {
    std::string name = (fs::temp_directory_path() / "fake-node-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    roots.sys = folder_ / "sys";
    roots.proc = folder_ / "proc";
    roots.shm = folder_;
    roots.nvml = "/nonexistent/libnvidia-ml.so.1";
  }
  ~FakeNode() { fs::remove_all(folder_); }
  FakeNode(const FakeNode&) = delete;

  const fs::path& folder() const { return folder_; }
  void sys(const std::string& path, const std::string& text) const { put(roots.sys / path, text); }
  void proc(const std::string& path, const std::string& text) const { put(roots.proc / path, text); }
  /// A device at its place on the PCI bus, as /sys shows it; returns its folder under devices/.
  fs::path pci(const std::string& place) const {
    const fs::path path = roots.sys / "devices" / place;
    fs::create_directories(path);
    fs::create_directories(roots.sys / "bus/pci/devices");
    fs::create_directory_symlink(path, roots.sys / "bus/pci/devices" / path.filename());
    return path;
  }
  /// An RDMA device with one port.
  void rdma(const std::string& name, const std::string& state = "4: ACTIVE",
            const std::string& rate = "400 Gb/sec (4X NDR)") const {
    const std::string port = "class/infiniband/" + name + "/ports/1/";
    sys(port + "state", state), sys(port + "phys_state", state[0] == '4' ? "5: LinkUp" : "3: Disabled");
    sys(port + "rate", rate), sys(port + "counters/link_downed", "0");
  }

  Roots roots;

 private:
  static void put(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    files::replace_atomically(file, text + "\n", 0644);
  }
  fs::path folder_;
};

/// A cluster file of DGX nodes with these NICs, one per GPU.
inline Expected dgx(const std::vector<std::string>& nics) {
  config::ClusterFacts facts;
  facts.gpu = "h100";
  facts.gpus_per_node = static_cast<int>(nics.size());
  facts.cpus_per_node = 4;
  facts.control_interface = "bond0";
  for (int i = 0; i < facts.gpus_per_node; ++i) facts.gpus.push_back({i, nics[i], "", 0, i});
  Expected expected;
  expected.cluster = facts;
  return expected;
}

/// The finding of this name; fails the test when there is none.
inline Finding found(const std::vector<Finding>& findings, const std::string& check) {
  for (const auto& finding : findings)
    if (finding.check == check) return finding;
  return {check, control::NodeHealth::Fitness::unknown, "NO SUCH FINDING", ""};
}

}  // namespace holdfast::launcher::test
