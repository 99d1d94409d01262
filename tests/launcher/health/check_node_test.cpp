// Network adapters, processors, memory, limits, the clock and folders, on a node made of files.
#include <gmock/gmock.h>

#include "launcher/health/check_host.hpp"
#include "launcher/health/check_network.hpp"
#include "launcher/health/check_storage.hpp"
#include "tests/launcher/health/fake_node.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using Fitness = control::NodeHealth::Fitness;
using test::dgx;
using test::FakeNode;
using test::found;
using ::testing::HasSubstr;

TEST(Rdma, is_up_and_fast) {
  FakeNode node;
  EXPECT_EQ(check_rdma(node.roots, {}).front().fitness, Fitness::unknown) << "none here, none asked for";
  node.rdma("mlx5_0"), node.rdma("mlx5_3"), node.rdma("mlx5_1", "1: DOWN");
  const auto findings = check_rdma(node.roots, dgx({"mlx5_0", "mlx5_3"}));
  EXPECT_EQ(worst(findings), Fitness::ok) << "mlx5_1 is of no GPU";
  EXPECT_EQ(found(findings, "nic.state").says, "2 RDMA devices up");
  EXPECT_EQ(found(findings, "nic.rate").says, "400 Gb/s each");
  EXPECT_EQ(check_rdma(node.roots, {}).front().fitness, Fitness::warning)
      << "without a cluster file it may be unused";
}

TEST(Rdma, that_a_gpu_names_must_be_there_up_and_as_fast_as_the_others) {
  FakeNode node;
  node.rdma("mlx5_0"), node.rdma("mlx5_1", "1: DOWN"),
      node.rdma("mlx5_2", "4: ACTIVE", "200 Gb/sec (2X NDR)");
  node.sys("class/infiniband/mlx5_0/ports/1/counters/link_downed", "37");
  const auto findings = check_rdma(node.roots, dgx({"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_9"}));
  EXPECT_EQ(found(findings, "nic.state").fitness, Fitness::critical);
  EXPECT_EQ(found(findings, "nic.state").says,
            "mlx5_9 does not exist; mlx5_1 is down (1: DOWN, 3: Disabled)");
  EXPECT_EQ(found(findings, "nic.rate").fitness, Fitness::critical);
  EXPECT_EQ(found(findings, "nic.rate").says, "mlx5_2 runs at 200 Gb/s, others at 400 Gb/s");
  EXPECT_EQ(found(findings, "nic.links").says, "mlx5_0 lost its link 37 times since boot");
}

TEST(Rdma, is_not_down_where_its_state_cannot_be_read) {
  FakeNode node;
  node.rdma("mlx5_0"), node.rdma("mlx5_1");
  const auto state = node.roots.sys / "class/infiniband/mlx5_1/ports/1/state";
  std::filesystem::remove(state);
  std::filesystem::create_directory(state);  // it opens, and reading it fails
  const auto findings = check_rdma(node.roots, dgx({"mlx5_0", "mlx5_1"}));
  EXPECT_EQ(found(findings, "nic.state").fitness, Fitness::unknown);
  EXPECT_EQ(found(findings, "nic.state").says, "the state cannot be read of mlx5_1");
}

TEST(ControlInterface, needs_a_carrier) {
  FakeNode node;
  node.sys("class/net/lo/carrier", "1");
  EXPECT_EQ(check_interface(node.roots, {}).front().fitness, Fitness::critical) << "lo does not count";
  EXPECT_EQ(check_interface(node.roots, dgx({""})).front().says, "there is no interface called bond0");
  node.sys("class/net/bond0/carrier", "1"), node.sys("class/net/bond0/speed", "100000");
  EXPECT_EQ(check_interface(node.roots, dgx({""})).front().says, "bond0 at 100 Gb/s");
  node.sys("class/net/bond0/carrier", "0"), node.sys("class/net/bond0/operstate", "down");
  EXPECT_EQ(check_interface(node.roots, dgx({""})).front().fitness, Fitness::critical);
}

TEST(Pcie, width_of_a_rail_is_critical_and_of_a_disk_a_warning) {
  FakeNode node;
  const auto width = [&](const std::string& device, const char* now, const char* most) {
    node.sys("class/" + device + "/device/current_link_width", now);
    node.sys("class/" + device + "/device/max_link_width", most);
  };
  EXPECT_EQ(check_pcie(node.roots, {}).front().fitness, Fitness::unknown);
  width("infiniband/mlx5_0", "16", "16"), width("nvme/nvme0", "4", "4"), width("nvme/nvme1", "0", "255");
  EXPECT_EQ(check_pcie(node.roots, {}).front().says, "2 devices at full width");
  width("nvme/nvme0", "2", "4");
  EXPECT_EQ(check_pcie(node.roots, dgx({"mlx5_0"})).front().fitness, Fitness::warning);
  width("infiniband/mlx5_0", "8", "16");
  const auto finding = check_pcie(node.roots, dgx({"mlx5_0"})).front();
  EXPECT_EQ(finding.fitness, Fitness::critical);
  EXPECT_EQ(finding.says, "mlx5_0 has 8 of 16 PCIe lanes; nvme0 has 2 of 4 PCIe lanes");
}

TEST(Cpus, are_counted_and_compared) {
  FakeNode node;
  node.sys("devices/system/cpu/online", "0-7"),
      node.proc("self/status", "Name:\tx\nCpus_allowed_list:\t0-1,4");
  const auto facts = read_cpus(node.roots);
  EXPECT_EQ(facts.online, 8);
  EXPECT_EQ(facts.allowed, 3);
  auto expected = dgx({""});  // 4 CPUs
  EXPECT_EQ(cpu_findings(facts, {}).front().fitness, Fitness::ok);
  EXPECT_EQ(cpu_findings(facts, expected).front().fitness, Fitness::critical)
      << "the machine has them, this process not";
  EXPECT_EQ(cpu_findings({8, 4}, expected).front().fitness, Fitness::ok);
  EXPECT_EQ(cpu_findings({2, 2}, expected).front().fitness, Fitness::warning);
  EXPECT_EQ(cpu_findings({0, 0}, expected).front().fitness, Fitness::unknown);
}

TEST(Memory, is_free_unlimited_and_without_errors) {
  FakeNode node;
  node.proc("meminfo", "MemTotal:       1000000 kB\nMemFree:  1 kB\nMemAvailable:    900000 kB");
  node.proc("self/cgroup", "0::/system.slice/job_1/step_0");
  auto findings = check_memory(node.roots, {});
  EXPECT_EQ(found(findings, "memory.free").says, "878.9 MiB of 976.6 MiB available");
  EXPECT_EQ(found(findings, "memory.ecc").fitness, Fitness::unknown);
  node.sys("fs/cgroup/system.slice/job_1/memory.max", "104857600");
  node.sys("fs/cgroup/system.slice/job_1/step_0/memory.max", "max");
  node.sys("devices/system/edac/mc/mc0/ce_count", "2"), node.sys("devices/system/edac/mc/mc0/ue_count", "0");
  findings = check_memory(node.roots, {});
  EXPECT_EQ(found(findings, "memory.free").fitness, Fitness::warning);
  EXPECT_EQ(found(findings, "memory.free").says, "878.9 MiB of 976.6 MiB available, limited to 100.0 MiB");
  EXPECT_EQ(found(findings, "memory.ecc").fitness, Fitness::ok);
  node.sys("devices/system/edac/mc/mc0/ue_count", "1");
  EXPECT_EQ(found(check_memory(node.roots, {}), "memory.ecc").fitness, Fitness::critical);
  auto expected = dgx({""});
  expected.cluster->node_memory_bytes = 1'024'000'000;
  EXPECT_EQ(found(check_memory(node.roots, expected), "memory.free").says,
            "878.9 MiB of 976.6 MiB available, limited to 100.0 MiB");
  expected.cluster->node_memory_bytes += 1;
  EXPECT_EQ(found(check_memory(node.roots, expected), "memory.free").advice,
            "A module is missing, or correct node_memory_bytes?");
  node.proc("meminfo", "MemTotal: 1000000 kB\nMemAvailable: 40000 kB");
  EXPECT_EQ(found(check_memory(node.roots, {}), "memory.free").fitness, Fitness::warning);
}

TEST(SharedMemory, must_hold_what_ranks_will_keep) {
  FakeNode node;
  Expected expected;
  expected.shm_bytes = std::int64_t{1} << 60;
  EXPECT_EQ(check_shm(node.roots, expected).front().fitness, Fitness::critical);
  auto smaller = dgx({""});
  smaller.cluster->node_shm_bytes = std::int64_t{1} << 60;
  EXPECT_EQ(check_shm(node.roots, smaller).front().fitness, Fitness::warning);
  EXPECT_EQ(check_shm(node.roots, smaller).front().advice, "Mount it larger, or correct node_shm_bytes?");
  node.roots.shm = "/nonexistent";
  EXPECT_EQ(check_shm(node.roots, {}).front().fitness, Fitness::critical);
}

TEST(Limits, of_locked_memory_matter_to_rdma_alone) {
  LimitFacts facts;
  facts.locked = 65536;
  EXPECT_EQ(found(limit_findings(facts, {}, false), "limits.locked").fitness, Fitness::ok);
  EXPECT_EQ(found(limit_findings(facts, {}, true), "limits.locked").fitness, Fitness::warning);
  EXPECT_EQ(found(limit_findings(facts, dgx({"mlx5_0"}), true), "limits.locked").fitness, Fitness::critical);
  facts.files = 1024;
  EXPECT_EQ(found(limit_findings(facts, {}, false), "limits.files").fitness, Fitness::warning);
}

TEST(TheClock, must_follow_a_server) {
  EXPECT_EQ(clock_findings({true, true, 0.0001, 0.01}).front().fitness, Fitness::ok);
  EXPECT_EQ(clock_findings({true, true, -0.2, 0.5}).front().fitness, Fitness::warning);
  EXPECT_EQ(clock_findings({true, false, 0, 16}).front().fitness, Fitness::warning);
  EXPECT_EQ(clock_findings({}).front().fitness, Fitness::unknown);
}

TEST(Space, is_weighed_in_parts_bytes_and_inodes) {
  EXPECT_EQ(space_finding("/x", {100e9, 50e9, 1e6, 9e5}).fitness, Fitness::ok);
  EXPECT_EQ(space_finding("/x", {100e9, 4e9, 1e6, 9e5}).fitness, Fitness::warning);
  EXPECT_EQ(space_finding("/x", {100e9, 0.5e9, 1e6, 9e5}).fitness, Fitness::critical);
  EXPECT_EQ(space_finding("/x", {100e9, 50e9, 1e6, 50}).fitness, Fitness::critical) << "no inodes left";
  EXPECT_EQ(space_finding("/x", {100e9, 50e9, 0, 0}).fitness, Fitness::ok) << "a file system without a limit";
}

TEST(FileSystems, are_known_by_their_numbers) {
  EXPECT_EQ(shared_finding("/x", 0x0BD00BD0).says, "/x is on lustre");
  EXPECT_EQ(shared_finding("/x", 0x6969).fitness, Fitness::ok);
  EXPECT_EQ(shared_finding("/x", 0xEF53).fitness, Fitness::unknown) << "a bind mount may still be shared";
  EXPECT_EQ(seen_by_others(0x65735546), std::nullopt);
  EXPECT_EQ(file_system_name(0x1234), "type 0x1234");
}

TEST(Folders, are_written_timed_and_left_clean) {
  FakeNode node;
  const auto findings = check_folder(node.folder(), Depth::normal, true);
  EXPECT_NE(worst(findings), Fitness::critical);
  EXPECT_THAT(found(findings, "disk.speed").says, HasSubstr("wrote "));
  EXPECT_THAT(found(findings, "disk.latency").says, HasSubstr("a small file is synced"));
  EXPECT_TRUE(fs::is_empty(node.folder())) << "nothing may be left";
  EXPECT_EQ(check_folder(node.folder() / "nowhere", Depth::fast, true).front().fitness, Fitness::critical);
  EXPECT_EQ(time_small_files("/proc").fitness, Fitness::critical) << "nobody can write there";
}

TEST(Witness, proves_that_a_folder_is_shared) {
  FakeNode node;
  const fs::path file = node.folder() / "random" / "shared-file";
  EXPECT_EQ(check_shared_file(file).fitness, Fitness::critical);
  fs::create_directories(file.parent_path());
  files::replace_atomically(file, "x");
  EXPECT_EQ(check_shared_file(file).fitness, Fitness::ok);
  EXPECT_EQ(check_shared_file(file).says, node.folder().string() + " is seen by this node, too");
}

TEST(Mounts, of_network_file_systems_are_asked) {
  FakeNode node;
  node.proc("mounts", "server:/a /home nfs4 rw 0 0\n/dev/sda / ext4 rw 0 0\nx@tcp:/l /lustre lustre rw 0 0");
  EXPECT_THAT(network_mounts(node.roots), ::testing::ElementsAre("/home", "/lustre"));
  EXPECT_EQ(ask_mount(node.folder()).fitness, Fitness::ok);
  EXPECT_EQ(ask_mount("/nonexistent").fitness, Fitness::critical);
}

TEST(KernelLog, that_cannot_be_read_is_told_with_what_is_lost_and_what_helps) {
  FakeNode node;
  node.roots.kernel_log = node.roots.proc / "no-kmsg";
  auto finding = found(check_kernel(node.roots), "kernel.log");
  EXPECT_EQ(finding.fitness, Fitness::warning);
  EXPECT_THAT(finding.says, HasSubstr("no-kmsg cannot be read (No such file or directory): machine checks"));
  EXPECT_THAT(finding.says, HasSubstr("SXid"));
  EXPECT_THAT(finding.advice, HasSubstr("container"));
  node.roots.kernel_log = "/";  // as a device whose reads are refused
  finding = found(check_kernel(node.roots), "kernel.log");
  EXPECT_EQ(finding.fitness, Fitness::warning);
  EXPECT_THAT(finding.advice, HasSubstr("kernel.dmesg_restrict=0"));
  node.roots.kernel_log = "/dev/null";
  EXPECT_EQ(found(check_kernel(node.roots), "kernel.log").fitness, Fitness::ok);
}

}  // namespace
}  // namespace holdfast::launcher
