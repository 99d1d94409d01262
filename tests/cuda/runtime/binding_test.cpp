#include "src/cuda/runtime/binding.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <thread>

#include "src/base/error.hpp"

namespace holdfast::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A folder that looks like /sys, for as long as the object lives.
class Sysfs {
 public:
  Sysfs() {
    std::string name = (fs::temp_directory_path() / "holdfast-sysfs-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    root = name;
  }
  ~Sysfs() { fs::remove_all(root); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << '\n';
  }
  /// `path`: bridges and the device itself, below its root complex.
  void pci(const std::string& path, const std::string& vendor, const std::string& kind, int numa,
           const std::string& cpus) {
    const fs::path device = fs::path("devices") / path;
    write(device / "vendor", vendor), write(device / "class", kind);
    write(device / "numa_node", std::to_string(numa)), write(device / "local_cpulist", cpus);
    fs::create_directories(root / "bus/pci/devices");
    fs::create_directory_symlink(fs::path("../../..") / device, root / "bus/pci/devices" / device.filename());
  }
  void gpu(const std::string& path, int numa, const std::string& cpus) {
    pci(path, "0x10de", "0x030200", numa, cpus);
  }
  void nic(const std::string& path, const std::string& name, int numa, const std::string& cpus,
           const std::string& state = "4: ACTIVE") {
    if (!fs::exists(root / "devices" / path)) pci(path, "0x15b3", "0x020700", numa, cpus);
    write(fs::path("class/infiniband") / name / "ports/1/state", state);
    fs::create_directory_symlink(fs::path("../../../devices") / path,
                                 root / "class/infiniband" / name / "device");
  }
  /// CPUs c and c + distance are one core.
  void siblings(int cpus, int distance) {
    for (int cpu = 0; cpu < cpus; ++cpu)
      write(fmt::format("devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu),
            fmt::format("{},{}", cpu % distance, cpu % distance + distance));
  }
  fs::path root;
};

/// Two sockets of 56 cores; behind each of eight PCIe switches a GPU and a network card; two cards with two
/// ports each for storage; NVSwitches, which are of the same vendor and no GPUs.
struct DgxH100 : Sysfs {
  static constexpr const char* near[2] = {"0-55,112-167", "56-111,168-223"};
  const std::vector<std::string> gpus{"1b", "43", "52", "61", "9d", "c3", "d1", "df"};
  const std::vector<std::string> nics{"18", "40", "4f", "5e", "9a", "c0", "ce", "dc"};
  const std::vector<std::string> names{"mlx5_0", "mlx5_3", "mlx5_4",  "mlx5_5",
                                       "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"};

  DgxH100() {
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const int numa = i < 4 ? 0 : 1;
      const std::string bridge =
          fmt::format("pci0000:{0}/0000:{0}:01.0/0000:{1}:00.0", 15 + i, nics[i].substr(0, 1) + "7");
      gpu(fmt::format("{}/0000:f{}:01.0/0000:{}:00.0", bridge, i, gpus[i]), numa, near[numa]);
      nic(fmt::format("{}/0000:f{}:02.0/0000:{}:00.0", bridge, i, nics[i]), names[i], numa, near[numa]);
    }
    for (const int numa : {0, 1})
      for (const int port : {0, 1})
        nic(fmt::format("pci0000:{}/0000:{}:01.0/0000:{}:00.{}", 26 + numa, 26 + numa, numa ? "aa" : "29",
                        port),
            fmt::format("mlx5_{}", (numa ? 7 : 1) + port), numa, near[numa]);
    pci("pci0000:02/0000:02:01.0/0000:05:00.0", "0x10de", "0x068000", 0, near[0]);
    siblings(224, 112);
  }
  std::string bus(std::size_t i) const { return fmt::format("0000:{}:00.0", gpus[i]); }
};

TEST(Binding, CpuListsAreReadAndWritten) {
  for (const char* text : {"", "0", "0-3", "0-3,8", "1,3,5-7", "56-111,168-223"})
    EXPECT_EQ(cpus_text(parse_cpus(text)), text);
  EXPECT_EQ(cpus_text(parse_cpus("8,0-3,2\n")), "0-3,8");
  for (const char* text : {"x", "1-", "-1", "3-1", "1,", ",1", "1;2", "1 2", "99999999999", "0-99999"})
    EXPECT_THROW(parse_cpus(text), Error) << text;
}

TEST(Binding, FindsTheGpusOfANode) {
  const DgxH100 dgx;
  EXPECT_THAT(gpus_of(dgx.root), ElementsAre(dgx.bus(0), dgx.bus(1), dgx.bus(2), dgx.bus(3), dgx.bus(4),
                                             dgx.bus(5), dgx.bus(6), dgx.bus(7)));
  EXPECT_THAT(gpus_of(dgx.root / "nowhere"), IsEmpty());
  EXPECT_EQ(cpus_text(near_cpus(dgx.root, dgx.bus(5))), DgxH100::near[1]);
  EXPECT_THAT(near_cpus(dgx.root, "0000:00:00.0"), IsEmpty());
}

TEST(Binding, RanksOfADgxShareTheirSocketsByWholeCores) {
  const DgxH100 dgx;
  std::vector<std::vector<int>> near;
  for (std::size_t i = 0; i < 8; ++i) near.push_back(near_cpus(dgx.root, dgx.bus(i)));
  const char* expected[] = {"0-13,112-125",  "14-27,126-139", "28-41,140-153", "42-55,154-167",
                            "56-69,168-181", "70-83,182-195", "84-97,196-209", "98-111,210-223"};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(cpus_text(share_of(dgx.root, near, i)), expected[i]);
  // One rank of a socket has all of it.
  EXPECT_EQ(cpus_text(share_of(dgx.root, {near[0], near[4]}, 1)), DgxH100::near[1]);
}

TEST(Binding, SharesOfOddNumbersCoverEverythingOnce) {
  Sysfs machine;
  machine.siblings(10, 5);
  const auto near = parse_cpus("0-9");
  for (std::size_t users = 1; users <= 5; ++users) {
    std::vector<int> all;
    for (std::size_t i = 0; i < users; ++i) {
      const auto share = share_of(machine.root, std::vector(users, near), i);
      EXPECT_EQ(share.size() % 2, 0u);
      EXPECT_GE(share.size(), 10 / users - 1);
      all.insert(all.end(), share.begin(), share.end());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, near) << users;
  }
  // More users than cores: each has one.
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(share_of(machine.root, std::vector(7, near), i).size(), 2u);
  // Without topology a logical CPU is a core; without CPUs there is nothing to share.
  EXPECT_EQ(cpus_text(share_of("/nowhere", {{2, 3}, {2, 3}}, 1)), "3");
  EXPECT_THAT(share_of("/nowhere", {{}, {}}, 1), IsEmpty());
}

TEST(Binding, BindsOnlyWhatNobodyHasBoundBefore) {
  const auto near = parse_cpus("0-7"), share = parse_cpus("2-3"), all = parse_cpus("0-15");
  EXPECT_EQ(cpus_text(cpus_to_bind(near, share, all)), "2-3");
  EXPECT_EQ(cpus_text(cpus_to_bind(near, share, near)), "2-3");
  // srun has given this rank four CPUs, of which two are near, or all, or none.
  EXPECT_EQ(cpus_text(cpus_to_bind(near, share, parse_cpus("6-9"))), "6-7");
  EXPECT_THAT(cpus_to_bind(near, share, parse_cpus("4-7")), IsEmpty());
  EXPECT_THAT(cpus_to_bind(near, share, parse_cpus("8-11")), IsEmpty());
  // Nothing is known, or there is nothing to leave out.
  EXPECT_THAT(cpus_to_bind({}, {}, all), IsEmpty());
  EXPECT_THAT(cpus_to_bind(all, all, all), IsEmpty());
}

TEST(Binding, UsersAreTheRanksOrAllGpusOfTheNode) {
  const std::vector<std::string> node{"a", "b", "c", "d"};
  const auto all = users_of(node, false, 1, 2, node);
  EXPECT_THAT(all.gpus, ElementsAre("a", "b"));
  EXPECT_EQ(all.me, 1u);
  const auto sharing = users_of({"a"}, false, 2, 3, node);
  EXPECT_THAT(sharing.gpus, ElementsAre("a", "a", "a"));
  EXPECT_EQ(sharing.me, 2u);
  const auto given = users_of({"c"}, true, 1, 4, node);
  EXPECT_EQ(given.gpus, node);
  EXPECT_EQ(given.me, 2u);
  EXPECT_THAT(users_of({"x"}, true, 1, 4, node).gpus, ElementsAre("x"));
}

TEST(Binding, EachGpuOfADgxHasTheCardBehindItsSwitch) {
  const DgxH100 dgx;
  for (std::size_t i = 0; i < 8; ++i) EXPECT_THAT(near_nics(dgx.root, dgx.bus(i)), ElementsAre(dgx.names[i]));
  // The storage cards are left out. Names in the order of their text: the list is a set.
  EXPECT_THAT(gpu_nics(dgx.root),
              ElementsAre("mlx5_0", "mlx5_10", "mlx5_11", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9"));
}

TEST(Binding, ACardThatIsDownIsNotNear) {
  DgxH100 dgx;
  dgx.write("class/infiniband/mlx5_3/ports/1/state", "1: DOWN");
  // The socket's other cards are equally far; those for storage too.
  EXPECT_THAT(near_nics(dgx.root, dgx.bus(1)), ElementsAre("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_4", "mlx5_5"));
}

TEST(Binding, WithoutSwitchesTheRootOrTheNodeDecides) {
  Sysfs machine;
  machine.gpu("pci0000:40/0000:40:01.0/0000:41:00.0", 0, "0-7");
  machine.gpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1, "8-15");
  machine.gpu("pci0000:c0/0000:c0:01.0/0000:c1:00.0", -1, "0-15");
  machine.nic("pci0000:40/0000:40:02.0/0000:42:00.0", "mlx5_0", 0, "0-7");
  machine.nic("pci0000:90/0000:90:02.0/0000:91:00.0", "mlx5_1", 1, "8-15");
  EXPECT_THAT(near_nics(machine.root, "0000:41:00.0"), ElementsAre("mlx5_0"));
  EXPECT_THAT(near_nics(machine.root, "0000:81:00.0"), ElementsAre("mlx5_1"));
  EXPECT_THAT(near_nics(machine.root, "0000:c1:00.0"), IsEmpty());
  EXPECT_THAT(near_nics(machine.root, "0000:ee:00.0"), IsEmpty());
  EXPECT_THAT(gpu_nics(Sysfs().root), IsEmpty());
}

TEST(Binding, BindsTheThreadAndThoseItStarts) {
  std::thread([] {
    const auto before = allowed_cpus();
    ASSERT_FALSE(before.empty());
    ASSERT_TRUE(bind_to({before.back()}));
    EXPECT_THAT(allowed_cpus(), ElementsAre(before.back()));
    std::thread([&] { EXPECT_THAT(allowed_cpus(), ElementsAre(before.back())); }).join();
    EXPECT_FALSE(bind_to({}));
    EXPECT_THAT(allowed_cpus(), ElementsAre(before.back()));
  }).join();
}

}  // namespace
}  // namespace holdfast::cuda
