// The meaning of single observations: exit codes, patterns, Xids, kernel log lines, and the table of signs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "launcher/diagnose/gpu_history.hpp"
#include "launcher/diagnose/kernel_line.hpp"
#include "launcher/diagnose/output_patterns.hpp"
#include "launcher/diagnose/xid.hpp"

namespace holdfast::launcher {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string kind(int status, const std::string& said = "", bool our_codes = false) {
  return meaning_of(0, status, said, our_codes).kind->name;
}

TEST(SignKinds, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const SignKind& k : sign_kinds()) {
    EXPECT_TRUE(names.insert(k.name).second) << k.name;
    EXPECT_EQ(kind_called(k.name), &k);
    EXPECT_TRUE(*k.says) << k.name;
    EXPECT_EQ(k.weight > 0, *k.cause != 0) << k.name << ": causes have a name, notes have none";
    if (k.ends_node) {
      EXPECT_EQ(k.blame, Blame::node) << k.name;
    }
  }
  EXPECT_EQ(kind_called("no such kind"), nullptr);
}

TEST(Words, ByStatus) {
  EXPECT_EQ(kind(-1), "vanished");
  EXPECT_EQ(kind(1), "exit_code");
  EXPECT_EQ(kind(1, "it is broken"), "own_error");
  EXPECT_EQ(kind(75), "transient");
  EXPECT_EQ(kind(127), "cannot_start");
  EXPECT_EQ(kind(128 + 4), "illegal_instruction");
  EXPECT_EQ(kind(128 + 6), "aborted");
  EXPECT_EQ(kind(128 + 7), "bus_error");
  EXPECT_EQ(kind(128 + 8), "arithmetic_fault");
  EXPECT_EQ(kind(128 + 9), "killed");
  EXPECT_EQ(kind(128 + 11), "segmentation_fault");
  EXPECT_EQ(kind(128 + 15), "terminated");
  EXPECT_EQ(kind(255), "exit_code");
}

TEST(Words, HoldfastsExitCodesMeanSomethingOnlyWhereTheyAreMeant) {
  for (const int status : {2, 3, 4, 93}) {
    EXPECT_EQ(kind(status), "exit_code") << status;
    EXPECT_EQ(kind(status, "train.py: error: unrecognized arguments"), "own_error") << status;
    EXPECT_EQ(kind(status, "", true), "refused") << status;
  }
  for (const int status : {1, 5, 75, 127}) EXPECT_EQ(kind(status, "", true), kind(status)) << status;
}

TEST(Words, OwnTroubleBeforeAPeers) {
  const std::string both =
      "[rank3]: Connection reset by peer\nRuntimeError: CUDA error: uncorrectable ECC error "
      "encountered\n[rank3]: Broken pipe";
  const Meaning m = meaning_of(3, 1, both);
  EXPECT_STREQ(m.kind->name, "ecc_uncorrected");
  EXPECT_EQ(m.line, "RuntimeError: CUDA error: uncorrectable ECC error encountered");
  EXPECT_EQ(kind(134, "Connection reset by peer"), "peer_lost") << "words before the way it ended";
  EXPECT_EQ(kind(93, "Connection reset by peer", true), "refused") << "but for a code that is meant";
}

TEST(Words, UnknownOnesAreTheLastLineOfWhoEndedByItself) {
  const std::string text = "Traceback (most recent call last):\n  File x\nKeyError: 'labels'\n\n";
  EXPECT_EQ(meaning_of(0, 1, text).line, "KeyError: 'labels'");
  EXPECT_EQ(meaning_of(0, 134, text).line, "KeyError: 'labels'");
  EXPECT_EQ(meaning_of(0, 137, text).line, "");
  EXPECT_EQ(meaning_of(0, -1, text).line, "");
}

TEST(Words, WhereThereIsNoRoom) {
  EXPECT_EQ(kind(1, "cannot write /lustre/x (No space left on device)"), "no_space");
  EXPECT_EQ(kind(1, "cannot write /dev/shm/x (No space left on device)"), "no_space_local");
}

TEST(Words, RanksThatAreNamed) {
  EXPECT_THAT(meaning_of(2, 1, "[rank2] x did not finish (ranks 3, 5 have not arrived)").peers,
              ElementsAre(3, 5));
  EXPECT_THAT(meaning_of(2, 1, "MPI_Recv with rank 7 failed: Connection reset").peers, ElementsAre(7));
  EXPECT_THAT(meaning_of(2, 1, "ranking of frank 99999999999999999999: broken pipe").peers, IsEmpty());
}

TEST(Words, AnyBytesAreSurvived) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 30000, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const Meaning m = meaning_of(1, static_cast<int>(random() % 300) - 1, text);
    ASSERT_NE(m.kind, nullptr);
    ASSERT_LE(m.line.size(), 300u);
    (void)sign_of_kernel_line(text);
    (void)action_named_in("recovery action changed " + text);
    (void)gpu_named_in(text);
  }
}

struct Row {
  int number;
  XidAction first, again;
};
TEST(Xid, TheTable) {
  using enum XidAction;
  const std::vector<Row> expected = {
      {8, restart, substitute},      {13, restart, substitute},     {31, restart, substitute},
      {32, restart, substitute},     {37, ignore, ignore},          {38, ignore, ignore},
      {39, restart, substitute},     {40, restart, substitute},     {41, restart, substitute},
      {43, ignore, ignore},          {44, ignore, ignore},          {45, ignore, ignore},
      {46, substitute, substitute},  {48, substitute, substitute},  {54, substitute, substitute},
      {62, substitute, substitute},  {63, ignore, ignore},          {64, substitute, substitute},
      {66, ignore, ignore},          {67, ignore, ignore},          {68, restart, substitute},
      {69, restart, substitute},     {71, restart, substitute},     {74, substitute, substitute},
      {79, substitute, substitute},  {80, restart, substitute},     {92, watch, watch},
      {93, ignore, ignore},          {94, restart, restart},        {95, substitute, substitute},
      {109, substitute, substitute}, {110, substitute, substitute}, {119, substitute, substitute},
      {120, substitute, substitute}, {121, ignore, ignore},         {126, restart, substitute},
      {134, restart, substitute},    {136, substitute, substitute}, {137, ignore, ignore},
      {140, substitute, substitute}, {141, ignore, ignore},         {143, substitute, substitute},
      {144, watch, watch},           {150, watch, watch},           {151, watch, watch},
      {154, ignore, ignore},         {155, substitute, substitute}, {156, substitute, substitute},
      {158, substitute, substitute}, {159, watch, watch},           {162, watch, watch},
      {165, watch, watch},           {171, substitute, substitute}, {172, substitute, substitute},
      {1, restart, substitute},      {157, restart, substitute},    {999, restart, substitute}};
  for (const Row& row : expected) {
    EXPECT_EQ(action_of_xid(row.number, false), row.first) << row.number;
    EXPECT_EQ(action_of_xid(row.number, true), row.again) << row.number;
  }
  EXPECT_EQ(row_of_xid(157), nullptr);
  for (int number = 0; number < 300; ++number)
    if (const XidRow* row = row_of_xid(number)) {
      EXPECT_TRUE(row->first <= number && number <= row->last && *row->meaning);
    }
}

TEST(Xid, TheDriversRecoveryAction) {
  using enum XidAction;
  const auto changed = [](const std::string& to) {
    return action_named_in(
        "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to " + to);
  };
  EXPECT_EQ(changed("0x1 (GPU Reset Required)"), substitute);
  EXPECT_EQ(changed("0x2 (Node Reboot Required)"), substitute);
  EXPECT_EQ(changed("0x2 (OS Reboot)"), substitute);
  EXPECT_EQ(changed("0x3 (Drain P2P)"), restart);
  EXPECT_EQ(changed("0x4 (Drain and Reset)"), substitute);
  EXPECT_EQ(changed("0x0 (None)"), ignore);
  EXPECT_EQ(changed("0x77 (Something New)"), std::nullopt);
  EXPECT_EQ(changed("GPU Reset Required"), substitute) << "without a number";
  EXPECT_EQ(changed("Drain P2P"), restart);
  EXPECT_EQ(changed("None"), ignore);
  EXPECT_EQ(action_named_in("Xid 79, GPU has fallen off the bus; a reset is required"), std::nullopt);
}

TEST(KernelLine, Lines) {
  const auto read = [](const std::string& line) {
    const auto sign = sign_of_kernel_line(line);
    return sign ? sign->kind + " " + std::to_string(sign->code) : "nothing";
  };
  EXPECT_EQ(
      read("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
      "xid 79");
  EXPECT_EQ(read("NVRM: Xid (0000:03:00): 31, Ch 00000001"), "xid 31");
  EXPECT_EQ(read("NVRM: Xid (PCI:0000:3b:00): broken"), "nothing");
  EXPECT_EQ(read("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
            "nvlink_error 20034");
  EXPECT_EQ(read("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted "
                 "PRIV error"),
            "nothing");
  EXPECT_EQ(read("Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB"), "oom_kill 4711");
  EXPECT_EQ(read("Out of memory: Killed process 12 (holdfast-train) total-vm:1kB"), "node_out_of_memory 12");
  EXPECT_EQ(read("EXT4-fs (sda1): Remounting filesystem read-only"), "disk_read_only 0");
  EXPECT_EQ(read("{1}[Hardware Error]: event severity: fatal"), "machine_check 0");
  EXPECT_EQ(read("{1}[Hardware Error]: event severity: corrected"), "nothing");
  EXPECT_EQ(read("Memory failure: 0x3f2a1: recovery action for dirty LRU page: Recovered"),
            "machine_check 0");
  EXPECT_EQ(read("mlx5_core 0000:1a:00.0: device's health compromised - reached miss count"), "nic_failed 0");
  EXPECT_EQ(read("usb 1-1: new high-speed USB device"), "nothing");
}

TEST(GpuNames, UuidThenAddress) {
  EXPECT_EQ(gpu_named_in("GPU 3 (0000:3b:00, GPU-5f1b0a77-1234)"), "GPU-5f1b0a77-1234");
  EXPECT_EQ(gpu_named_in("NVRM: Xid (PCI:0000:3B:00): 79, GPU-side"), "0000:3b:00");
  EXPECT_EQ(gpu_named_in("GPU 00000000:9B:00.0"), "0000:9b:00");
  EXPECT_EQ(gpu_named_in("at 12:30:00 nothing"), "");
}

}  // namespace
}  // namespace holdfast::launcher
