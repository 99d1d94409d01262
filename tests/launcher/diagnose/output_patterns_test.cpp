// The meaning of single observations: exit codes, patterns, Xids, kernel log lines, and the table of signs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "launcher/diagnose/gpu_history.hpp"
#include "launcher/diagnose/kernel_line.hpp"
#include "launcher/diagnose/nvlink_fault.hpp"
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

TEST(Words, AFaultOfStorageThatTheProgramHasSurvivedIsNotItsEnd) {
  const std::string warning = "wandb: WARNING No space left on device, the file is left out\n";
  std::string steps;
  for (int step = 0; step < 20; ++step) steps += "step " + std::to_string(step) + "\n";
  const std::string error = "Traceback (most recent call last):\n  File \"t.py\", line 3\n    f()\n";
  EXPECT_EQ(kind(1, warning + "ValueError: bad"), "no_space") << "among the last lines";
  EXPECT_EQ(kind(1, warning + steps + "the loss is not finite"), "own_error");
  EXPECT_EQ(kind(1, warning + error + "ValueError: bad"), "own_error");
  EXPECT_EQ(kind(143, warning), "terminated") << "it was ended, and has not failed";
  const std::string full = error + "OSError: [Errno 28] No space left on device: '/lustre/x'\n";
  EXPECT_EQ(kind(1, steps + full), "no_space");
  EXPECT_EQ(kind(1, full + steps + error + "ValueError: bad"), "own_error") << "it was caught";
  const std::string chained =
      full + "\nDuring handling of the above exception, another exception occurred:\n\n" + error;
  EXPECT_EQ(kind(1, steps + chained + "RuntimeError: unexpected pos 64 vs 0\nwandb: run ended"), "no_space");
  EXPECT_EQ(kind(1, "[rank3]: " + error + "[rank3]: OSError: [Errno 116] Stale file handle"), "shared_gone");
  EXPECT_EQ(kind(1, warning + error + "torch.OutOfMemoryError: CUDA out of memory"), "gpu_memory_full");
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
  XidAction action;
  const char* nvidia;
};
/// Against the catalog's column "Immediate Action", of numbers that it lists for the H100.
TEST(Xid, TheTable) {
  using enum XidAction;
  const std::vector<Row> expected = {{8, restart, "RESTART_APP"},
                                     {11, restart, "RESTART_APP"},
                                     {13, restart, "RESTART_APP"},
                                     {31, restart, "RESTART_APP"},
                                     {32, restart, "RESTART_APP"},
                                     {37, ignore, "IGNORE"},
                                     {38, ignore, "IGNORE"},
                                     {39, restart, "RESTART_APP"},
                                     {41, restart, "RESTART_APP"},
                                     {43, ignore, "IGNORE"},
                                     {44, ignore, "IGNORE"},
                                     {45, ignore, "WORKFLOW_XID_45"},
                                     {46, substitute, "RESET_GPU"},
                                     {48, substitute, "WORKFLOW_XID_48"},
                                     {54, substitute, "CHECK_MECHANICALS"},
                                     {60, restart, "RESTART_APP"},
                                     {61, watch, "CONTACT_SUPPORT"},
                                     {62, substitute, "RESET_GPU"},
                                     {63, ignore, "IGNORE"},
                                     {64, substitute, "RESET_GPU"},
                                     {66, ignore, "IGNORE"},
                                     {67, ignore, "IGNORE"},
                                     {68, restart, "RESTART_APP"},
                                     {69, restart, "RESTART_APP"},
                                     {70, restart, "RESTART_APP"},
                                     {72, restart, "RESTART_APP"},
                                     {74, restart, "WORKFLOW_NVLINK_ERR"},
                                     {75, restart, "RESTART_APP"},
                                     {77, restart, "RESTART_APP"},
                                     {79, substitute, "RESTART_BM"},
                                     {80, restart, "RESTART_APP"},
                                     {82, restart, "RESTART_APP"},
                                     {89, restart, "RESTART_APP"},
                                     {92, watch, "IGNORE"},
                                     {94, restart, "RESTART_APP"},
                                     {95, substitute, "RESET_GPU"},
                                     {96, restart, "RESTART_APP"},
                                     {105, restart, "RESTART_APP"},
                                     {106, ignore, "IGNORE"},
                                     {107, ignore, "IGNORE"},
                                     {108, ignore, "IGNORE"},
                                     {109, substitute, "RESET_GPU"},
                                     {110, substitute, "RESET_GPU"},
                                     {119, substitute, "RESET_GPU"},
                                     {120, substitute, "RESET_GPU"},
                                     {122, watch, "CONTACT_SUPPORT"},
                                     {123, watch, "CONTACT_SUPPORT"},
                                     {124, watch, "CONTACT_SUPPORT"},
                                     {136, substitute, "RESET_GPU"},
                                     {137, ignore, "IGNORE"},
                                     {140, substitute, "RESET_GPU"},
                                     {141, ignore, "IGNORE"},
                                     {143, substitute, "RESET_GPU"},
                                     {151, substitute, "RESTART_VM"},
                                     {154, ignore, "XID_154"},
                                     {156, substitute, "RESET_GPU"},
                                     {157, ignore, "IGNORE"},
                                     {158, substitute, "RESET_GPU"},
                                     {171, watch, "none"},
                                     {172, watch, "none"}};
  for (const Row& row : expected) {
    ASSERT_NE(row_of_xid(row.number), nullptr) << row.number;
    EXPECT_EQ(action_of_xid(row.number), row.action) << row.number;
    EXPECT_STREQ(row_of_xid(row.number)->nvidia, row.nvidia) << row.number;
  }
  for (const int unknown : {1, 90, 999}) {
    EXPECT_EQ(row_of_xid(unknown), nullptr);
    EXPECT_EQ(action_of_xid(unknown), restart);
  }
}

/// Only what NVIDIA answers with a reset, a restart of the machine or an inspection takes a node out.
TEST(Xid, EachRowDoesWhatNvidiasActionSays) {
  using enum XidAction;
  const std::map<std::string, XidAction> expected = {{"IGNORE", ignore},
                                                     {"XID_154", ignore},
                                                     {"WORKFLOW_XID_45", ignore},
                                                     {"CHECK_UVM", watch},
                                                     {"CONTACT_SUPPORT", watch},
                                                     {"UPDATE_SWFW", watch},
                                                     {"none", watch},
                                                     {"WORKFLOW_NVLINK5_ERR", watch},
                                                     {"RESTART_APP", restart},
                                                     {"WORKFLOW_NVLINK_ERR", restart},
                                                     {"RESET_GPU", substitute},
                                                     {"RESTART_BM", substitute},
                                                     {"RESTART_VM", substitute},
                                                     {"CHECK_MECHANICALS", substitute},
                                                     {"WORKFLOW_XID_48", substitute}};
  for (const XidRow& row : xid_table()) {
    EXPECT_TRUE(row.first <= row.last && *row.meaning) << row.first;
    const auto action = expected.find(row.nvidia);
    ASSERT_NE(action, expected.end()) << row.nvidia;
    const bool single_bit_errors = row.first == 92;  // nothing to do, but worth a look
    EXPECT_EQ(row.action, single_bit_errors ? watch : action->second) << row.first;
    EXPECT_EQ(row_of_xid(row.first), &row) << row.first << " is in two rows";
    if (row.of_program) {
      EXPECT_EQ(row.action, restart);
    }
  }
}

std::string nvlink(const std::string& registers, int link = 14) {
  return fmt::format(
      "NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link "
      "{}({})",
      link, registers);
}

TEST(NvlinkFault, IsReadFromTheTextOfAnXid74) {
  const auto fault = nvlink_fault_in(nvlink("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0xffffffff"));
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->link, 14);
  EXPECT_THAT(fault->registers, ElementsAre(0, 0, 0x10000, 0, 0, 0, 0xffffffff));
  EXPECT_TRUE(nvlink_fault_in(nvlink("0x1,0x0,0x0,0x0,0x0,0x0,0x0")));
  for (const char* registers :
       {"", "0x0", "0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "0x0, 0x0, x, 0x0, 0x0, 0x0, 0x0",
        "0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "0x100000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"})
    EXPECT_FALSE(nvlink_fault_in(nvlink(registers))) << registers;
  EXPECT_FALSE(nvlink_fault_in("Xid 74 of GPU 3 (0000:3b:00, GPU-5f1b0a77-0001)"));
  EXPECT_FALSE(nvlink_fault_in("fatal error detected on link 3"));
}

/// NVIDIA's workflow, bit by bit: the number of the register, from 1, and its bit.
TEST(NvlinkFault, EachBitOfNvidiasWorkflow) {
  using enum XidAction;
  const auto action = [](int reg, int bit, int seen = 1, bool others = false) {
    NvlinkFault fault{3, {}};
    fault.registers[reg - 1] = 1u << bit;
    return verdict_of(fault, seen, others).action;
  };
  const auto all = [&](int reg, std::vector<int> bits, XidAction expected, int seen = 1,
                       bool others = false) {
    for (const int bit : bits) EXPECT_EQ(action(reg, bit, seen, others), expected) << reg << ": " << bit;
  };
  const std::vector<int> parity_1 = {4, 5}, parity_3 = {0, 1, 2, 6},
                         parity_5 = {18, 19, 21, 22, 24, 25, 27, 28};
  all(1, {0, 23, 30}, ignore, 9);
  all(1, {1, 20}, restart, 9);
  all(1, {1, 20}, ignore, 1, true);
  all(1, {8, 9, 12, 16, 17, 24, 28}, substitute);
  all(1, {21, 22}, substitute);
  all(1, {21, 22}, ignore, 1, true);
  all(1, {27, 29}, restart, 9);
  all(3, {13, 17, 18}, restart, 9);
  all(3, {16, 19}, restart), all(3, {16, 19}, substitute, 2);
  all(4, {16, 17}, restart, 9), all(4, {16, 17}, ignore, 1, true);
  all(4, {18}, substitute);
  all(5, {20, 23, 26, 29}, ignore, 9);
  for (const auto& [reg, bits] : {std::pair(1, parity_1), {3, parity_3}, {5, parity_5}})
    all(reg, bits, restart, 2), all(reg, bits, substitute, 3);
  all(1, {31, 2, 3}, restart, 9), all(5, {0, 31}, restart, 9);
  EXPECT_EQ(verdict_of({3, {}}, 1, false).action, restart) << "no bit at all";
  EXPECT_EQ(verdict_of({3, {1u << 20 | 1u << 8, 0, 0, 0, 1u << 20}}, 1, false).action, substitute)
      << "the worst counts";
  EXPECT_EQ(verdict_of({3, {0, 0xffffffff, 0, 0, 1u << 20, 0xffffffff, 0xffffffff}}, 1, false).action, ignore)
      << "the other registers are not valid";
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
  EXPECT_EQ(read("mlx5_core 0000:1a:00.0: poll_health:795:(pid 0): Fatal error 1 detected"), "nic_failed 0");
  EXPECT_EQ(read("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 "
                 "page:0x3f2a1 offset:0x0 grain:32)"),
            "machine_check 0");
  EXPECT_EQ(read("mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)"),
            "thermal 0");
  EXPECT_EQ(read("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 94, Contained"), "xid 94") << "MIG";
  EXPECT_EQ(read("usb 1-1: new high-speed USB device"), "nothing");
}

/// Names of processes (at most 15 bytes) and of files in the lines that the kernel writes of them.
TEST(KernelLine, NamesThatAProgramChoosesAreNoSigns) {
  for (const char* line :
       {"NVRM: Xid (): 8[4711]: segfault at 0 ip 0 sp 0 error 4 in a.out[1000+1000]",
        "a.out[4711]: segfault at 0 ip 0 sp 0 error 4 in NVRM: Xid (PCI:0000:3b:00): 79, gone[1000+1000]",
        "traps: a.out[4711] general protection fault ip:0 sp:0 error:0 in mlx5_core fatal[1000+1000]",
        "mlx5_core fatal invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "EDAC MC0: 1 UE [7]: segfault at 0 ip 0 sp 0 error 4 in page:0x1[1000+1000]",
        "mlx5_core[Fatal[4711]: segfault at 0 ip 0 sp 0 error 4 in a.out[1000+1000]",
        "mlx5_core[x[4711]: segfault at 0 ip 0 sp 0 error 4 in Fatal[1000+1000]",
        "futex_wake_op: mlx5_core Fatal tries to shift op by -1; fix this program",
        "mlx5_core Fatal (4711): Using mlock ulimits for SHM_HUGETLB is deprecated",
        "process 'x/EDAC a UE b' started with executable stack",
        "NVRM: Xid (0): (8): Using mlock ulimits for SHM_HUGETLB is deprecated",
        "NVRM: Xid (:): : page allocation failure: order:0, mode:0x1",
        "audit: type=1701 comm=\"x\" exe=\"/tmp/NVRM: Xid (PCI:0000:3b:00): 79\" sig=11"})
    EXPECT_FALSE(sign_of_kernel_line(line)) << line;
  EXPECT_EQ(sign_of_kernel_line("Memory cgroup out of memory: Killed process 4711 (NVRM: Xid (): 8) x")->kind,
            "oom_kill");
  EXPECT_EQ(sign_of_kernel_line("mce: [Hardware Error]: Uncorrected error")->kind, "machine_check");
}

TEST(GpuNames, UuidThenAddress) {
  EXPECT_EQ(gpu_named_in("GPU 3 (0000:3b:00, GPU-5f1b0a77-1234)"), "GPU-5f1b0a77-1234");
  EXPECT_EQ(gpu_named_in("NVRM: Xid (PCI:0000:3B:00): 79, GPU-side"), "0000:3b:00");
  EXPECT_EQ(gpu_named_in("GPU 00000000:9B:00.0"), "0000:9b:00");
  EXPECT_EQ(gpu_named_in("at 12:30:00 nothing"), "");
}

}  // namespace
}  // namespace holdfast::launcher
