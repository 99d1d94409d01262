#include "launcher/diagnose/signs.hpp"

#include <algorithm>

namespace holdfast::launcher {
namespace {

using enum Blame;

constexpr const char* drain = "drain the node and have its hardware inspected";
constexpr const char* none = "";

}  // namespace

const std::vector<SignKind>& sign_kinds() {
  // name, blame, ends_node, weight, cause, says, advice. Weight 0: never a cause, only evidence. Below 10:
  // signs of victims.
  static const std::vector<SignKind> kinds = {
      // The GPU and its links.
      {"gpu_lost", node, true, 100, "gpu", "a GPU is gone",
       "reboot the node; if it comes again, have the GPU replaced"},
      {"gpu_recovery", node, true, 92, "gpu", "the driver requests recovery of the GPU",
       "reset the GPU, or reboot the node"},
      {"xid", node, false, 90, "gpu", "an Xid error", none},  // the number decides: xid.hpp
      {"row_remap_failure", node, true, 88, "gpu", "a row of GPU memory could not be remapped",
       "drain the node, reset the GPU; a candidate for return to the manufacturer"},
      {"nvlink_error", node, true, 86, "gpu", "an NVLink error",
       "reset all GPUs of the node; if it comes again, inspect"},
      {"ecc_uncorrected", node, true, 80, "gpu", "an uncorrectable error in GPU memory",
       "reset the GPU; if it comes again, have it replaced"},
      {"fabric_not_ready", node, true, 70, "gpu", "the GPUs' fabric is not ready",
       "restart the fabric manager, or reboot the node"},
      {"gpu_busy", node, false, 50, "gpu", "a GPU is in use by another process",
       "look for processes of earlier jobs"},
      // The rest of the node.
      {"machine_check", node, true, 84, "hardware",
       "an uncorrected hardware error of the processor or its memory", drain},
      {"nic_failed", node, true, 78, "network", "a network adapter has failed", drain},
      {"link_down", node, true, 70, "network", "a network link is down", "check its cable and switch port"},
      {"disk_read_only", node, true, 72, "disk", "a file system has become read-only", drain},
      {"node_out_of_memory", node, false, 76, "oom_kill", "the node ran out of memory",
       "check which other processes use its memory"},
      {"no_space_local", node, false, 57, "no_space", "no space on the node's own file system",
       "remove what earlier jobs left there"},
      {"node_limit", node, false, 55, "node_limit",
       "the node has no process, file descriptor or memory left for a rank",
       "check which processes use up its limits"},
      {"pmix_ended", node, false, 36, "PMIx server ended", "the PMIx server of the node's ranks has ended",
       none},
      {"port_taken", node, false, 34, "rank failed", "an address is in use already", none},
      // Faults that no node is to blame for.
      {"no_space", shared, false, 58, "no_space", "no space on the shared file system",
       "free space, or raise the quota"},
      {"shared_gone", shared, false, 56, "shared_gone", "the shared file system does not answer", none},
      {"checkpoint_unreadable", shared, false, 59, "checkpoint_unreadable", "a checkpoint cannot be read now",
       "check the shared file system"},
      {"storage_error", shared, false, 44, "storage_error", "an error of storage", none},
      // The program.
      {"oom_kill", program, false, 75, "oom_kill",
       "the job's memory limit was reached and the kernel ended a process", none},
      {"refused", program, false, 60, "rank failed", "the program refuses to go on", none},
      {"left_running", program, false, 61, "left_running",
       "the program ended with 0 while processes that it had started went on",
       "start the training with exec or without '&', or let the script end with wait"},
      {"gpu_memory_full", program, false, 47, "gpu_memory_full", "no memory left on the GPU", none},
      {"host_memory_full", program, false, 48, "host_memory_full", "no memory left on the host", none},
      {"cuda_error", program, false, 46, "rank failed", "a CUDA error", none},
      {"illegal_instruction", program, false, 42, "rank failed",
       "an instruction that the processor does not know", none},
      {"bus_error", program, false, 41, "rank failed", "a bus error", none},
      {"segmentation_fault", program, false, 40, "rank failed", "a segmentation fault", none},
      {"arithmetic_fault", program, false, 39, "rank failed", "an arithmetic exception", none},
      {"cannot_start", program, false, 38, "rank failed", "the program cannot be started", none},
      {"aborted", program, false, 20, "rank failed", "the program aborted itself", none},
      {"own_error", program, false, 25, "rank failed", "the program ended with an error message", none},
      {"exit_code", program, false, 20, "rank failed", "the program ended with an error", none},
      // Traces: the cause only where there is no other.
      {"vanished", nothing, false, 12, "rank failed", "the process vanished", none},
      {"killed", nothing, false, 10, "rank failed", "the process was ended by SIGKILL from outside", none},
      {"transient", nothing, false, 6, "rank failed", "the program asks to be started again", none},
      {"terminated", nothing, false, 5, "rank failed", "the process was asked to end", none},
      {"peer_lost", nothing, false, 3, "rank failed", "a peer was lost", none},
      // Notes.
      {"link_up", nothing, false, 0, "", "a network link is up again", none},
      {"shared_back", nothing, false, 0, "", "the shared file system answers again", none},
      {"link_slow", node, false, 0, "", "a link of the node runs below its rate",
       "check its cable, transceiver or lanes"},
      {"thermal", node, false, 0, "", "a GPU or processor slows down: it is too hot",
       "check the node's cooling"},
      {"clock_jump", node, false, 0, "", "the node's clock has jumped",
       "check the node's time synchronization"},
      {"log_tail", nothing, false, 0, "", "the end of a rank's log", none},  // part of the rank's end
  };
  return kinds;
}

const SignKind* kind_called(const std::string& name) {
  const auto& kinds = sign_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const SignKind& k) { return k.name == name; });
  return kind == kinds.end() ? nullptr : &*kind;
}

const char* name_of(Blame blame) {
  switch (blame) {
    case Blame::node:
      return "node";
    case Blame::program:
      return "program";
    case Blame::shared:
      return "shared";
    case Blame::nothing:
      return "nothing";
    case Blame::claim:
      return "claim";
  }
  return "";
}

SignVerdict verdict_of(const SignKind& kind, Writer writer) {
  if (writer == Writer::program && kind.blame == node) return {claim, false};
  return {kind.blame, kind.ends_node};
}

}  // namespace holdfast::launcher
