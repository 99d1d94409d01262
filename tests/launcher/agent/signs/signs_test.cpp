// The signs on a node: each source with a node made of files, and all of them at a rank's end.
#include "launcher/agent/signs/signs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "launcher/agent/signs/gpu_source.hpp"
#include "src/base/env.hpp"
#include "tests/nvml/fake_nvml.hpp"
#include "tests/support/no_descriptors.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;
using control::Sign;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SignsTest : public testing::Test {
 protected:
  SignsTest() : folder_(testing::TempDir() + "signs-" + std::to_string(::getpid())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "run");
  }
  ~SignsTest() override { fs::remove_all(folder_); }
  void put(const fs::path& name, const std::string& text, bool append = false) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, append ? std::ios::app : std::ios::trunc) << text;
  }
  static std::vector<std::string> kinds(const std::vector<Sign>& signs) {
    std::vector<std::string> out;
    for (const Sign& s : signs) out.push_back(s.kind + (s.rank < 0 ? "" : " of " + std::to_string(s.rank)));
    return out;
  }
  SignPlaces places() const {
    SignPlaces p;
    p.shared = folder_ / "run";
    p.memory_counter = folder_ / "memory.events";
    p.injected = folder_ / "injected";
    p.sys = "";
    p.nvml = "";
    return p;
  }
  fs::path folder_;
};

TEST_F(SignsTest, MemoryKillsOfBothVersions) {
  put("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n");
  MemoryKills kills(folder_ / "memory.events");
  EXPECT_TRUE(kills.counts());
  EXPECT_THAT(kills.poll(), IsEmpty()) << "what was before is none of ours";
  put("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 4\noom_group_kill 0\n");
  const auto signs = kills.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("oom_kill"));
  EXPECT_EQ(signs[0].code, 2);
  EXPECT_THAT(signs[0].text, HasSubstr("oom_kill 2 -> 4"));
  EXPECT_THAT(kills.poll(), IsEmpty());
  EXPECT_FALSE(MemoryKills("").counts());
  EXPECT_THAT(MemoryKills("").poll(), IsEmpty());

  put("mount/memory/job/step/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  put("cgroup", "9:name=systemd:/\n4:cpu,memory:/job/step\n0::/\n");
  EXPECT_EQ(memory_counter_of(folder_ / "cgroup", folder_ / "mount"),
            folder_ / "mount/memory/job/step/memory.oom_control");
  put("mount/job/memory.events", "oom_kill 0\n");
  put("cgroup", "0::/job\n");
  EXPECT_EQ(memory_counter_of(folder_ / "cgroup", folder_ / "mount"), folder_ / "mount/job/memory.events");
  put("cgroup", "0::/elsewhere\n");
  EXPECT_EQ(memory_counter_of(folder_ / "cgroup", folder_ / "mount"), "");
}

TEST_F(SignsTest, AKillIsClaimedByTheRankThatItTook) {
  put("memory.events", "oom_kill 0\n");
  control::RealLoop loop;
  Signs signs(loop, places());
  signs.attempt_begins(1);
  EXPECT_THAT(signs.at_exit(1, 1, 137, ""), IsEmpty()) << "killed by somebody else";
  put("memory.events", "oom_kill 1\n");
  EXPECT_THAT(kinds(signs.at_exit(2, 1, 1, "")), ElementsAre("oom_kill")) << "not one that ended by itself";
  EXPECT_THAT(kinds(signs.at_exit(3, 1, 137, "")), ElementsAre("oom_kill of 3"))
      << "told before, and now by name";
  EXPECT_THAT(signs.at_exit(4, 1, 137, ""), IsEmpty()) << "one kill, one rank";
  put("memory.events", "oom_kill 3\n");
  EXPECT_THAT(kinds(signs.at_exit(5, 1, 137, "")), ElementsAre("oom_kill of 5"));
  EXPECT_THAT(kinds(signs.at_exit(6, 1, -1, "")), ElementsAre("oom_kill of 6"))
      << "nobody knows how it ended";
}

TEST_F(SignsTest, SignsCarryTheAttemptThatTheyBelongTo) {
  put("memory.events", "oom_kill 0\n");
  control::RealLoop loop;
  Signs signs(loop, places());
  put("memory.events", "oom_kill 1\n");
  EXPECT_EQ(signs.poll().at(0).attempt, 0) << "before any";
  signs.attempt_begins(1);
  put("memory.events", "oom_kill 2\n");
  EXPECT_EQ(signs.poll().at(0).attempt, 1);
  EXPECT_EQ(signs.at_exit(7, 1, 1, "KeyError: 3").at(0).attempt, 1);
  put("memory.events", "oom_kill 3\n");
  signs.attempt_begins(2);
  const auto killed = signs.at_exit(7, 2, 137, "");
  ASSERT_THAT(kinds(killed), ElementsAre("oom_kill")) << "killed by somebody else";
  EXPECT_EQ(killed[0].attempt, 1) << "the kernel took what was left of the attempt before";
  EXPECT_EQ(signs.at_exit(7, 2, 1, "KeyError: 4").at(0).attempt, 2);
}

TEST_F(SignsTest, LastWordsAreTheTellingLine) {
  control::RealLoop loop;
  Signs signs(loop, places());
  put("log",
      "epoch 1\nConnection reset by peer\nRuntimeError: CUDA error: uncorrectable ECC error "
      "encountered\nbye\n");
  const auto found = signs.at_exit(7, 1, 1, log_tail(folder_ / "log"));
  ASSERT_THAT(kinds(found), ElementsAre("log_tail of 7"));
  EXPECT_EQ(found[0].text, "RuntimeError: CUDA error: uncorrectable ECC error encountered");
  EXPECT_EQ(found[0].code, 1);
  EXPECT_THAT(signs.at_exit(7, 1, 137, log_tail(folder_ / "log")), IsEmpty())
      << "a killed process says nothing";
  EXPECT_EQ(log_tail(folder_ / "no such log"), "");
  put("log", std::string(20000, 'x') + "\nthe end\n");
  EXPECT_EQ(log_tail(folder_ / "log"), "\nthe end\n") << "whole lines";
  std::string many;
  for (int n = 0; n < 100; ++n) many += std::to_string(n) + "\n";
  put("log", many);
  EXPECT_THAT(log_tail(folder_ / "log"), testing::StartsWith("\n60\n61\n")) << "the last of them";
}

TEST_F(SignsTest, LinksByTransition) {
  std::map<std::string, LinkState> is = {{"eth0", LinkState::up}, {"ib1", LinkState::down}};
  put("rdma/mlx5_0/ports/1/state", "4: ACTIVE\n");
  put("rdma/mlx5_0/ports/2/state", "4: ACTIVE\n");
  put("rdma/mlx5_0/ports/3/state", "1: DOWN\n");  // and never used
  Links links({"eth0", "ib1", "absent"}, {"mlx5_0", "mlx5_9"}, folder_ / "rdma",
              [&](const std::string& name) { return is.contains(name) ? is[name] : LinkState::absent; });
  EXPECT_THAT(kinds(links.poll()), ElementsAre("link_down")) << "ib1 is there, and down";
  EXPECT_THAT(links.poll(), IsEmpty());
  put("rdma/mlx5_0/ports/2/state", "1: DOWN\n");
  auto signs = links.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("link_down"));
  EXPECT_EQ(signs[0].text, "mlx5_0 port 2");
  put("rdma/mlx5_0/ports/2/state", "4: ACTIVE\n");
  is["eth0"] = LinkState::unknown;
  EXPECT_THAT(kinds(links.poll()), ElementsAre("link_up"));
  is["eth0"] = LinkState::down;
  EXPECT_THAT(kinds(links.poll()), ElementsAre("link_down")) << "now it is known";
  put("rdma/mlx5_0/ports/2/state", "");
  EXPECT_THAT(links.poll(), IsEmpty()) << "its state could not be read";
  fs::remove_all(folder_ / "rdma/mlx5_0");
  EXPECT_THAT(kinds(links.poll()), ElementsAre("link_down", "link_down")) << "the adapter itself is gone";
  EXPECT_THAT(links.poll(), IsEmpty());
  EXPECT_EQ(state_of_interface("lo"), LinkState::up);
  EXPECT_EQ(state_of_interface("no such one"), LinkState::absent);
}

TEST_F(SignsTest, WithoutDescriptorsNothingIsDown) {
  put("rdma/mlx5_0/ports/1/state", "4: ACTIVE\n");
  Links links({"lo"}, {"mlx5_0"}, folder_ / "rdma", state_of_interface);
  SharedFolder shared(folder_, folder_ / "touched");
  EXPECT_THAT(links.poll(), IsEmpty());
  EXPECT_THAT(shared.poll(), IsEmpty());
  {
    const test::NoDescriptors full;
    EXPECT_THAT(links.poll(), IsEmpty());
    EXPECT_THAT(shared.poll(), IsEmpty());
  }
  EXPECT_THAT(links.poll(), IsEmpty());
}

TEST_F(SignsTest, ALinkBelowItsFirstRateIsToldOnceItStaysThere) {
  put("sys/class/net/eth0/speed", "10000\n");
  put("sys/class/net/veth/speed", "-1\n");
  put("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  put("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  LinkRates rates({"eth0", "veth", "absent"}, {}, folder_ / "sys");
  for (int poll = 0; poll < 3; ++poll) EXPECT_THAT(rates.poll(), IsEmpty());
  put("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (2X NDR)\n");
  EXPECT_THAT(rates.poll(), IsEmpty()) << "it may be being trained";
  const auto signs = rates.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("link_slow"));
  EXPECT_EQ(signs[0].text, "mlx5_0 port 1 runs at 200 Gb/s instead of 400");
  EXPECT_EQ(signs[0].code, 50);
  for (int poll = 0; poll < 9; ++poll) EXPECT_THAT(rates.poll(), IsEmpty()) << "it is known";
  put("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  for (int poll = 0; poll < 3; ++poll) EXPECT_THAT(rates.poll(), IsEmpty()) << "that is another sign";
  put("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  put("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  put("sys/class/net/eth0/speed", "1000\n");
  EXPECT_THAT(rates.poll(), IsEmpty());
  EXPECT_THAT(kinds(rates.poll()), ElementsAre("link_slow"));
  put("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (1X NDR)\n");
  EXPECT_THAT(rates.poll(), IsEmpty());
  const auto again = rates.poll();
  ASSERT_THAT(kinds(again), ElementsAre("link_slow")) << "it had its rate back";
  EXPECT_EQ(again[0].code, 25);
}

TEST_F(SignsTest, ANamedDeviceIsToRunAtTheRateOfTheOthers) {
  for (const char* device : {"mlx5_0", "mlx5_1", "storage"}) {
    put(std::string("sys/class/infiniband/") + device + "/ports/1/state", "4: ACTIVE\n");
    put(std::string("sys/class/infiniband/") + device + "/ports/1/rate",
        device == std::string("mlx5_0") ? "400 Gb/sec (4X NDR)\n" : "200 Gb/sec (4X HDR)\n");
  }
  LinkRates named({}, {"mlx5_0", "mlx5_1"}, folder_ / "sys"), all({}, {}, folder_ / "sys");
  EXPECT_THAT(named.poll(), IsEmpty());
  const auto signs = named.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("link_slow"));
  EXPECT_EQ(signs[0].text, "mlx5_1 port 1 runs at 200 Gb/s instead of 400");
  for (int poll = 0; poll < 3; ++poll) EXPECT_THAT(all.poll(), IsEmpty()) << "they may be of another kind";
}

TEST_F(SignsTest, ASharedFolderThatCannotBeWrittenIsGone) {
  std::filesystem::create_directories(folder_ / "run/logs");
  SharedFolder shared(folder_ / "run", folder_ / "run/logs/agent.log");
  EXPECT_TRUE(shared.poll().empty());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/logs/agent.log"));
  std::filesystem::remove_all(folder_ / "run/logs");
  const auto signs = shared.poll();
  ASSERT_EQ(signs.size(), 1u);
  EXPECT_EQ(signs[0].kind, "shared_gone");
  EXPECT_EQ(signs[0].code, ENOENT);
}

TEST_F(SignsTest, TheSharedFolderGoesAndReturns) {
  SharedFolder shared(folder_ / "run");
  EXPECT_THAT(shared.poll(), IsEmpty());
  fs::rename(folder_ / "run", folder_ / "away");
  EXPECT_THAT(kinds(shared.poll()), ElementsAre("shared_gone"));
  EXPECT_THAT(shared.poll(), IsEmpty());
  fs::rename(folder_ / "away", folder_ / "run");
  EXPECT_THAT(kinds(shared.poll()), ElementsAre("shared_back"));
}

TEST_F(SignsTest, ClockJumpsButNotSlowLooks) {
  double shift = 0;
  ClockJumps jumps(steady_seconds, [&] { return unix_seconds() + shift; });
  std::this_thread::sleep_for(Millis(20));
  EXPECT_THAT(jumps.poll(), IsEmpty());
  shift = -3600;
  const auto signs = jumps.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("clock_jump"));
  EXPECT_NEAR(static_cast<double>(signs[0].code), -3.6e6, 5e3);
  EXPECT_THAT(jumps.poll(), IsEmpty());
}

TEST_F(SignsTest, InjectedSignsAreThoseThatAreAppendedWhole) {
  put("injected", R"({"kind":"xid","code":48})"
                  "\n");
  InjectedSigns injected(folder_ / "injected");
  EXPECT_THAT(injected.poll(), IsEmpty()) << "of an earlier drill";
  put("injected",
      R"({"kind":"xid","code":79,"text":"GPU 3"})"
      "\nnonsense\n"
      R"({"kind":"no such"})"
      "\n"
      R"({"kind":"oom_k)",
      true);
  const auto signs = injected.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("xid"));
  EXPECT_EQ(signs[0].code, 79);
  EXPECT_EQ(signs[0].text, "GPU 3");
  put("injected",
      R"(ill","rank":5})"
      "\n"
      R"({"kind":"xid","code":"many"})"
      "\n",
      true);
  EXPECT_THAT(kinds(injected.poll()), ElementsAre("oom_kill of 5"));
}

TEST_F(SignsTest, InjectedSignsNeedADrill) {
  env::set("HOLDFAST_SIGNS", "/tmp/signs.%N.jsonl");
  config::RunConfig config;
  EXPECT_EQ(sign_places({folder_}, "dgx007", config, {}).injected, "");
  config.drill.allowed = true;
  EXPECT_EQ(sign_places({folder_}, "dgx007", config, {}).injected, "/tmp/signs.dgx007.jsonl");
  EXPECT_EQ(sign_places({folder_}, "dgx007", config, {}).sys, "/sys");
  env::set("HOLDFAST_SYS", "/tmp/%N/sys");
  EXPECT_EQ(sign_places({folder_}, "dgx007", config, {}).sys, "/tmp/dgx007/sys");
  config.drill.allowed = false;
  EXPECT_EQ(sign_places({folder_}, "dgx007", config, {}).sys, "/sys");
  config::ClusterFacts cluster;
  cluster.gpus = {{0, "mlx5_0", "ib0", 0, 0}, {1, "mlx5_0", "ib0", 0, 0}, {2, "", "", 0, 0}};
  cluster.control_interface = "eth0";
  const SignPlaces places = sign_places({folder_}, "dgx007", config, cluster);
  EXPECT_THAT(places.interfaces, ElementsAre("eth0", "ib0"));
  EXPECT_THAT(places.devices, ElementsAre("mlx5_0"));
}

TEST_F(SignsTest, TheKernelsLogAsFarAsItCanBeRead) {
  EXPECT_THAT(KernelLog(folder_ / "no log").poll(), IsEmpty());
  EXPECT_THAT(KernelLog(folder_ / "no log").unread(), testing::HasSubstr("cannot be read (No such file"));
  put("kmsg", "6,1,100,-;NVRM: Xid (PCI:0000:3b:00): 79, before\n");
  KernelLog log(folder_ / "kmsg");
  EXPECT_EQ(log.unread(), "");
  EXPECT_THAT(log.poll(), IsEmpty());
  put("kmsg", "4,2,200,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1\n SUBSYSTEM=pci\n", true);
  const auto signs = log.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("xid"));
  EXPECT_EQ(signs[0].code, 31);
}

TEST_F(SignsTest, FullIsWhatLeavesNoRoomToWorkWith) {
  constexpr double mib = 1 << 20, tib = mib * mib;
  EXPECT_FALSE(file_system_is_full(2 * mib, 64 * mib, true));
  EXPECT_TRUE(file_system_is_full(0.5 * mib, 64 * mib, true));
  EXPECT_TRUE(file_system_is_full(0.5 * tib, 1000 * tib, true));
  EXPECT_FALSE(file_system_is_full(2 * tib, 1000 * tib, true));
  EXPECT_TRUE(file_system_is_full(2 * tib, 1000 * tib, false));
  LocalSpace space({folder_, folder_ / "absent"});
  EXPECT_THAT(space.poll(), IsEmpty());
}

TEST_F(SignsTest, SlowSourcesAnswerThroughTheLoop) {
  control::RealLoop loop;
  Signs signs(loop, places());
  fs::rename(folder_ / "run", folder_ / "away");
  std::vector<Sign> seen;
  const auto timer = loop.every(Millis(20), [&] {
    for (auto& sign : signs.poll()) seen.push_back(std::move(sign));
    if (!seen.empty()) loop.stop();
  });
  const auto deadline = loop.after(Millis(10000), [&] { loop.stop(); });
  loop.run();
  EXPECT_THAT(kinds(seen), ElementsAre("shared_gone"));
}

TEST_F(SignsTest, AsManyGoIntoOneMessageAsTheCodecTakes) {
  std::vector<control::Sign> signs;
  for (int code = 0; code < 600; ++code) signs.push_back({"xid", -1, code, 0, "NVRM"});
  std::int64_t next = 0;
  for (const auto& part : messages_of(signs)) {
    std::string why;
    const auto heard = control::decode(control::encode(part), why);
    ASSERT_TRUE(heard) << why;
    for (const auto& sign : std::get<control::NodeSigns>(*heard).signs) EXPECT_EQ(sign.code, next++);
  }
  EXPECT_EQ(next, 600);
  EXPECT_THAT(messages_of({}), IsEmpty());
}

TEST_F(SignsTest, GpusFallIll) {
  const nvml::FakeVariable one("GPUS", "1");
  GpuSigns gpus(FAKE_NVML);
  EXPECT_THAT(gpus.poll(), IsEmpty());
  const nvml::FakeVariable xid("XID", "79");
  const nvml::FakeVariable recovery("RECOVERY", "2");
  auto signs = gpus.poll();
  ASSERT_THAT(kinds(signs), ElementsAre("xid", "gpu_recovery"));
  EXPECT_EQ(signs[0].code, 79);
  EXPECT_EQ(signs[0].text, "Xid 79 of GPU 0 (0000:18:00, GPU-5f1b0a77-0001)");
  EXPECT_EQ(signs[1].code, 2);
  EXPECT_THAT(gpus.poll(), IsEmpty());
  const nvml::FakeVariable slowdowns("SLOWDOWNS", "0x40");
  EXPECT_THAT(kinds(gpus.poll()), ElementsAre("thermal"));
  const nvml::FakeVariable links("LINKS", "17");
  std::vector<std::string> told;
  for (int look = 0; look < 20; ++look)
    for (auto& kind : kinds(gpus.poll())) told.push_back(kind);
  EXPECT_THAT(told, ElementsAre("nvlink_error")) << "once, when it stays down";
  const nvml::FakeVariable speed("LINK_SPEED", "13281");
  std::vector<Sign> slow;
  for (int look = 0; look < 20; ++look)
    for (auto& sign : gpus.poll()) slow.push_back(std::move(sign));
  ASSERT_THAT(kinds(slow), ElementsAre("link_slow"));
  EXPECT_EQ(slow[0].code, 50);
  EXPECT_THAT(slow[0].text, HasSubstr("NVLink 3 runs at 50 % of its speed (26.562 GB/s)"));
  const nvml::FakeVariable lost("LOST", "1");
  EXPECT_THAT(kinds(gpus.poll()), ElementsAre("gpu_lost"));
  EXPECT_THAT(gpus.poll(), IsEmpty());
}

TEST_F(SignsTest, ANodeWithoutGpusHasNoSignsOfThem) {
  GpuSigns gpus("libno-such-library.so");
  EXPECT_FALSE(gpus.absent());
  EXPECT_THAT(gpus.poll(), IsEmpty());
  EXPECT_TRUE(gpus.absent());
  EXPECT_THAT(gpus.poll(), IsEmpty());
  GpuSigns some(FAKE_NVML);
  (void)some.poll();
  EXPECT_FALSE(some.absent());
}

}  // namespace
}  // namespace holdfast::launcher
