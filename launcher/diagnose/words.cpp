#include "launcher/diagnose/words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <csignal>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

struct Words {
  const char* text;  ///< in lower case
  const char* kind;
};
// As programs, PyTorch, CUDA, NCCL, UCX, Open MPI, the C library and Holdfast itself say it. In one line, the
// first row that matches counts: the particular before the general.
constexpr std::array table{
    // Before the error of the system that is its reason.
    Words{"cannot be read now", "checkpoint_unreadable"},
    Words{"uncorrectable ecc error", "ecc_uncorrected"},
    Words{"eccuncorrectable", "ecc_uncorrected"},
    Words{"uncorrectable nvlink", "nvlink_error"},
    Words{"nvlinkuncorrectable", "nvlink_error"},
    Words{"hardware error on the nvlink", "nvlink_error"},
    Words{"gpu is lost", "gpu_lost"},
    Words{"fallen off the bus", "gpu_lost"},
    Words{"no cuda-capable device", "gpu_lost"},
    Words{"cuda_error_no_device", "gpu_lost"},
    Words{"system not yet initialized", "fabric_not_ready"},
    Words{"systemnotready", "fabric_not_ready"},
    Words{"devices are busy or unavailable", "gpu_busy"},
    Words{"device(s) is/are busy or unavailable", "gpu_busy"},
    Words{"deviceunavailable", "gpu_busy"},
    Words{"local catastrophic error", "nic_failed"},
    Words{"device fatal", "nic_failed"},
    Words{"async event: port error", "link_down"},
    Words{"async event: port active", "link_up"},
    Words{"network is down", "link_down"},
    Words{"read-only file system", "disk_read_only"},
    // Room. Where it is missing is in the same line.
    Words{"no room for the local level", "no_space_local"},
    Words{"of shared memory for", "no_space_local"},
    Words{"no space left on device", "no_space"},
    Words{"disk quota exceeded", "no_space"},
    Words{"no room for a checkpoint", "no_space"},
    Words{"out of disk space", "no_space"},
    Words{"cuda out of memory", "gpu_memory_full"},
    Words{"outofmemoryerror", "gpu_memory_full"},
    Words{"cudaerrormemoryallocation", "gpu_memory_full"},
    Words{"no room on the gpu", "gpu_memory_full"},
    Words{"cannot allocate memory", "host_memory_full"},
    Words{"can't allocate memory", "host_memory_full"},
    Words{"bad_alloc", "host_memory_full"},
    Words{"memoryerror", "host_memory_full"},
    Words{"oom-kill", "oom_kill"},
    Words{"oom killed", "oom_kill"},
    Words{"out of memory", "gpu_memory_full"},
    // Peers. Before the general errors of the same libraries.
    Words{"remote process exited or there was a network error", "peer_lost"},
    Words{"ncclremoteerror", "peer_lost"},
    Words{"connection reset", "peer_lost"},
    Words{"connection closed", "peer_lost"},
    Words{"connection refused", "peer_lost"},
    Words{"connection timed out", "peer_lost"},
    Words{"broken pipe", "peer_lost"},
    Words{"socket closed", "peer_lost"},
    Words{"socket timeout", "peer_lost"},
    Words{"endpoint timeout", "peer_lost"},
    Words{"transport retry count", "peer_lost"},
    Words{"retry counter exceeded", "peer_lost"},
    Words{"wc_retry_exc_err", "peer_lost"},
    Words{"got completion from peer", "peer_lost"},
    Words{"work request flushed", "peer_lost"},
    Words{"watchdog caught collective operation timeout", "peer_lost"},
    Words{"some nccl operations have failed or timed out", "peer_lost"},
    Words{"nccl communicator was aborted", "peer_lost"},
    Words{"received sigterm", "peer_lost"},
    Words{"signalexception", "peer_lost"},
    Words{"sending process", "peer_lost"},
    Words{"recvvalue failed", "peer_lost"},
    Words{"no route to host", "peer_lost"},
    Words{"host is unreachable", "peer_lost"},
    Words{"proc_failed", "peer_lost"},
    Words{"has not arrived", "peer_lost"},
    Words{"have not arrived", "peer_lost"},
    Words{"nothing has come from the node", "peer_lost"},
    Words{"has given up", "peer_lost"},
    Words{"cannot be reached", "peer_lost"},
    Words{"could not do it", "peer_lost"},
    Words{"did not finish within", "peer_lost"},
    Words{"exchange of state with rank", "peer_lost"},
    Words{"cannot be exchanged", "peer_lost"},
    Words{"an exchange before this one failed", "peer_lost"},
    Words{"the agent on this node does not answer", "transient"},
    Words{"stale file handle", "shared_gone"},
    Words{"transport endpoint is not connected", "shared_gone"},
    Words{"cannot send after transport endpoint shutdown", "shared_gone"},
    Words{"input/output error", "storage_error"},
    Words{"remote i/o error", "storage_error"},
    Words{"address already in use", "port_taken"},
    Words{"illegal memory access", "cuda_error"},
    Words{"device-side assert", "cuda_error"},
    Words{"misaligned address", "cuda_error"},
    Words{"unspecified launch failure", "cuda_error"},
    Words{"an illegal instruction was encountered", "cuda_error"},
    Words{"cuda error", "cuda_error"},
    Words{"failed on the gpu", "cuda_error"},
    Words{"segmentation fault", "segmentation_fault"},
    Words{"bus error", "bus_error"},
    Words{"command not found", "cannot_start"},
};
// A path of the node's own, in a line about space.
constexpr std::array local_places{"/dev/shm",       "/tmp",   "/var/", "/run/",
                                  "/scratch/local", "/local", "/raid", "/nvme"};
constexpr std::size_t longest_line = 300, max_text = 16384;

const SignKind* kind_of_line(const std::string& line) {
  for (const Words& words : table) {
    if (line.find(words.text) == std::string::npos) continue;
    const SignKind* kind = kind_called(words.kind);
    expects(kind, "words name kinds of signs");
    const bool local = std::any_of(local_places.begin(), local_places.end(), [&](const char* place) {
      const auto at = line.find(place);  // where a path begins, not inside of one
      return at != std::string::npos && (at == 0 || !std::isalnum(static_cast<unsigned char>(line[at - 1])));
    });
    return std::string_view(kind->name) == "no_space" && local ? kind_called("no_space_local") : kind;
  }
  return nullptr;
}

/// Said on purpose: another try on any node ends the same way.
bool final_exit_code(int status) {
  for (const Exit code : {Exit::usage, Exit::impossible, Exit::unhealthy, Exit::no_requeue})
    if (status == static_cast<int>(code)) return true;
  return false;
}

const char* kind_of_status(int status, bool words) {
  switch (status) {
    case -1:
      return "vanished";
    case 126:
    case 127:
      return "cannot_start";
    case static_cast<int>(Exit::transient):
      return "transient";
    case 128 + SIGSEGV:
      return "segmentation_fault";
    case 128 + SIGBUS:
      return "bus_error";
    case 128 + SIGILL:
      return "illegal_instruction";
    case 128 + SIGFPE:
      return "arithmetic_fault";
    case 128 + SIGABRT:
      return "aborted";
    case 128 + SIGKILL:
      return "killed";
    case 128 + SIGTERM:
    case 128 + SIGINT:
    case 128 + SIGHUP:
    case 128 + SIGPIPE:  // who reads has gone
      return "terminated";
  }
  if (final_exit_code(status)) return "refused";
  return words ? "own_words" : "exit_code";
}

/// Ranks named as "rank 7", "ranks 3, 5", "[Rank 2]"; not the speaker.
std::vector<int> ranks_named_in(const std::string& line, int speaker) {
  std::vector<int> out;
  for (auto at = line.find("rank"); at != std::string::npos; at = line.find("rank", at + 4)) {
    const char* p = line.data() + at + 4;
    const char* end = line.data() + line.size();
    if (p < end && *p == 's') ++p;
    for (bool more = true; more;) {
      while (p < end && (*p == ' ' || *p == '=' || *p == ':')) ++p;
      int rank = -1;
      const auto [next, error] = std::from_chars(p, end, rank);
      if (error != std::errc() || rank < 0) break;
      if (rank != speaker && std::find(out.begin(), out.end(), rank) == out.end()) out.push_back(rank);
      p = next;
      more = p < end && *p == ',';
      if (more) ++p;
    }
  }
  return out;
}

}  // namespace

Meaning meaning_of(int rank, int status, std::string_view said) {
  if (said.size() > max_text) said.remove_prefix(said.size() - max_text);
  Meaning best;
  std::string last_line;
  for (const auto whole : lines_of(said)) {
    const std::string line(whole.substr(0, longest_line));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last_line = line;
    const std::string low = lower(line);
    const SignKind* kind = kind_of_line(low);
    if (!kind || (best.kind && kind->weight <= best.kind->weight)) continue;
    best.kind = kind, best.line = line;
    best.peers = std::string_view(kind->name) == "peer_lost" ? ranks_named_in(low, rank) : std::vector<int>{};
  }
  const SignKind* by_status = kind_called(kind_of_status(status, !last_line.empty()));
  // Who is ended from outside has not said so; else the last line, as programs end with their error. A
  // complaint about a peer says more than the way in which the one who complains was ended or ended itself;
  // a code that means "never again" is said on purpose.
  if (!best.kind || (final_exit_code(status) && best.kind->weight < by_status->weight))
    return {by_status, by_status->blame == Blame::nothing ? "" : last_line, {}};
  return best;
}

}  // namespace holdfast::launcher
