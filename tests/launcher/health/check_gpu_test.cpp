#include "launcher/health/check_gpu.hpp"

#include <gmock/gmock.h>

#include "launcher/health/local_site.hpp"
#include "tests/launcher/health/fake_node.hpp"
#include "tests/nvml/fake_nvml.hpp"

namespace holdfast::launcher {
namespace {

using Fitness = control::NodeHealth::Fitness;
namespace fs = std::filesystem;
using test::dgx;
using test::found;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Gpus : public ::testing::Test {
 protected:
  Gpus() { node.roots.nvml = FAKE_NVML; }
  std::vector<Finding> look(int gpus) {
    const nvml::FakeVariable count("GPUS", std::to_string(gpus));
    return check_gpus(node.roots, dgx({"mlx5_0", "mlx5_3"}));
  }
  test::FakeNode node;
};

TEST_F(Gpus, that_are_all_there_and_well) {
  const auto findings = look(2);
  EXPECT_EQ(worst(findings), Fitness::ok);
  for (const auto& finding : findings)
    EXPECT_EQ(finding.fitness, Fitness::ok) << finding.check << finding.says;
  EXPECT_EQ(found(findings, "gpu.driver").says, "version 580.65.06");
  EXPECT_EQ(found(findings, "gpu.count").says, "2 of 2 GPUs, NVIDIA H100 80GB HBM3");
  EXPECT_EQ(found(findings, "gpu.nvlink").says, "18 NVLinks up on every GPU");
}

TEST_F(Gpus, each_with_its_own_trouble) {
  struct Row {
    const char* variable;
    const char* value;
    const char* check;
    Fitness fitness;
    const char* says;
  };
  for (const Row& row :
       {Row{"LOST", "1", "gpu.count", Fitness::critical,
            "1 of 2 GPUs, NVIDIA H100 80GB HBM3; GPU 0: GPU is lost"},
        Row{"UNCORRECTED", "3", "gpu.ecc", Fitness::warning, "GPU 0 had 3 uncorrected memory errors"},
        Row{"REMAP_PENDING", "1", "gpu.remap", Fitness::warning, "GPU 0 has a row remap pending"},
        Row{"PCIE_WIDTH", "8", "gpu.pcie", Fitness::critical, "GPU 0 has 8 of 16 PCIe lanes"},
        Row{"LINKS", "17", "gpu.nvlink", Fitness::critical, "GPU 0 has 17 of 18 NVLinks"},
        Row{"SLOWDOWNS", "0x80", "gpu.clocks", Fitness::critical,
            "GPU 0 is slowed down by the power supply's brake"},
        Row{"RECOVERY", "2", "gpu.recovery", Fitness::critical, "GPU 0 needs a reboot of the node"}}) {
    const nvml::FakeVariable broken(row.variable, row.value);
    const auto findings = look(2);
    EXPECT_EQ(worst(findings), row.fitness) << row.variable;
    EXPECT_EQ(found(findings, row.check).fitness, row.fitness) << row.variable;
    EXPECT_EQ(found(findings, row.check).says, row.says);
    EXPECT_NE(found(findings, row.check).advice, "") << row.variable;
  }
}

TEST_F(Gpus, that_are_missing_are_critical_only_where_they_must_be) {
  EXPECT_EQ(found(look(1), "gpu.count").fitness, Fitness::critical);
  node.roots.nvml = "/nonexistent.so";
  EXPECT_EQ(check_gpus(node.roots, dgx({"mlx5_0"})).front().fitness, Fitness::critical);
  EXPECT_EQ(check_gpus(node.roots, {}).front().fitness, Fitness::unknown);
  const auto device = node.pci("pci0000:15/0000:15:01.0/0000:18:00.0");
  node.sys("bus/pci/devices/0000:18:00.0/vendor", "0x10de");
  node.sys("bus/pci/devices/0000:18:00.0/class", "0x030200");
  EXPECT_EQ(gpus_on_bus(node.roots), 1);
  EXPECT_EQ(check_gpus(node.roots, {}).front().fitness, Fitness::warning) << "one on the bus, no driver";
  node.roots.nvml = FAKE_NVML;
  const nvml::FakeVariable refuses("INIT", "9");
  const auto finding = look(1).front();
  EXPECT_EQ(finding.fitness, Fitness::critical);
  EXPECT_THAT(finding.says, HasSubstr("does not start (Driver Not Loaded)"));
}

TEST(GpuFindings, weigh_what_the_fake_library_does_not_have) {
  NvmlFacts facts;
  facts.usable = facts.found = true;
  GpuState good;
  good.ecc = true;
  good.uncorrected = 0;
  good.remap = GpuState::Remap{};
  GpuState bad = good;
  bad.index = 1;
  bad.sram_exceeded = true;
  bad.remap->failed = true;
  bad.compute_mode = 2;
  bad.fabric = 2;
  bad.links_up = 18;
  bad.memory_used_bytes = std::int64_t{9} << 30;
  bad.temperature_c = 88;
  bad.slowdown_c = 90;
  bad.power_limit_mw = 500000;
  bad.power_default_mw = 700000;
  facts.gpus = {good, bad};
  const auto findings = gpu_findings(facts, 2, {});
  EXPECT_EQ(found(findings, "gpu.ecc").fitness, Fitness::critical);
  EXPECT_EQ(found(findings, "gpu.ecc").says, "GPU 1 has exceeded the threshold of uncorrected SRAM errors");
  EXPECT_EQ(found(findings, "gpu.remap").fitness, Fitness::critical);
  EXPECT_EQ(found(findings, "gpu.nvlink").says, "GPU 1 is not registered with the NVSwitch fabric");
  EXPECT_EQ(found(findings, "gpu.free").says,
            "GPU 1 does not accept programs (compute mode prohibited); GPU 1 has 9.00 GiB in use");
  EXPECT_EQ(found(findings, "gpu.clocks").fitness, Fitness::warning);
  EXPECT_EQ(found(findings, "gpu.clocks").says,
            "GPU 1 is at 88 C and slows down at 90 C; GPU 1 may take 500 W instead of 700 W");
  EXPECT_EQ(found(findings, "gpu.recovery").says, "NO SUCH FINDING")
      << "nothing is said where a driver tells nothing";
}

TEST(GpuFindings, take_boards_without_any_link_for_unconnected_ones) {
  NvmlFacts facts;
  facts.usable = facts.found = true;
  GpuState gpu;
  gpu.links_down = 18;
  facts.gpus = {gpu, gpu};
  EXPECT_EQ(found(gpu_findings(facts, 2, {}), "gpu.nvlink").fitness, Fitness::warning);
  facts.gpus[0].links_up = 18;
  facts.gpus[0].links_down.reset();
  EXPECT_EQ(found(gpu_findings(facts, 2, {}), "gpu.nvlink").fitness, Fitness::critical);
}

TEST_F(Gpus, get_the_nic_on_their_own_switch) {
  // Two switches with a GPU and a NIC each, and a storage NIC on a root port of its own.
  node.pci("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
  node.pci("pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:00.0/0000:9a:00.0");
  const auto nic = [&](const std::string& name, const std::string& place) {
    const auto device = node.pci(place);
    fs::create_directories(node.roots.sys / "class/infiniband" / name);
    fs::create_directory_symlink(device, node.roots.sys / "class/infiniband" / name / "device");
    fs::create_directories(device / "net" / ("net_" + name));
  };
  nic("mlx5_0", "pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:01.0/0000:9b:00.0");
  nic("mlx5_1", "pci0000:15/0000:15:02.0/0000:20:00.0");
  nic("mlx5_2", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0");
  node.sys("devices/pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:00.0/0000:9a:00.0/numa_node", "1");
  const auto site = probe_local_site(node.roots, "dgx001", "");
  ASSERT_EQ(site.gpu_facts.size(), 2u);
  EXPECT_EQ(site.gpu_facts[0], (config::GpuFacts{0, "mlx5_2", "net_mlx5_2", 0, 0}));
  EXPECT_EQ(site.gpu_facts[1], (config::GpuFacts{1, "mlx5_0", "net_mlx5_0", 1, 1}));
  EXPECT_THAT(site.other_nics, ::testing::ElementsAre("mlx5_1"));
  EXPECT_EQ(site.gpu_memory_bytes, 85899345920);
}

}  // namespace
}  // namespace holdfast::launcher
