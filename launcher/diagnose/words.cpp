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

struct Phrase {
  const char* text;  ///< in lower case
  const char* kind;
};
// As programs, PyTorch, CUDA, NCCL, UCX, Open MPI, the C library and Holdfast itself say it. In one line, the
// first row that matches counts: the particular before the general.
constexpr std::array table{
    // Before the error of the system that is its reason.
    Phrase{"cannot be read now", "checkpoint_unreadable"},
    Phrase{"uncorrectable ecc error", "ecc_uncorrected"},
    Phrase{"eccuncorrectable", "ecc_uncorrected"},
    Phrase{"uncorrectable nvlink", "nvlink_error"},
    Phrase{"nvlinkuncorrectable", "nvlink_error"},
    Phrase{"hardware error on the nvlink", "nvlink_error"},
    Phrase{"gpu is lost", "gpu_lost"},
    Phrase{"fallen off the bus", "gpu_lost"},
    Phrase{"no cuda-capable device", "gpu_lost"},
    Phrase{"cuda_error_no_device", "gpu_lost"},
    Phrase{"system not yet initialized", "fabric_not_ready"},
    Phrase{"systemnotready", "fabric_not_ready"},
    Phrase{"devices are busy or unavailable", "gpu_busy"},
    Phrase{"device(s) is/are busy or unavailable", "gpu_busy"},
    Phrase{"deviceunavailable", "gpu_busy"},
    Phrase{"local catastrophic error", "nic_failed"},
    Phrase{"device fatal", "nic_failed"},
    Phrase{"async event: port error", "link_down"},
    Phrase{"async event: port active", "link_up"},
    Phrase{"network is down", "link_down"},
    Phrase{"read-only file system", "disk_read_only"},
    // Room. Where it is missing is in the same line.
    Phrase{"no room for the local level", "no_space_local"},
    Phrase{"of shared memory for", "no_space_local"},
    Phrase{"no space left on device", "no_space"},
    Phrase{"disk quota exceeded", "no_space"},
    Phrase{"no room for a checkpoint", "no_space"},
    Phrase{"out of disk space", "no_space"},
    Phrase{"cuda out of memory", "gpu_memory_full"},
    Phrase{"outofmemoryerror", "gpu_memory_full"},
    Phrase{"cudaerrormemoryallocation", "gpu_memory_full"},
    Phrase{"no room on the gpu", "gpu_memory_full"},
    Phrase{"cannot allocate memory", "host_memory_full"},
    Phrase{"can't allocate memory", "host_memory_full"},
    Phrase{"bad_alloc", "host_memory_full"},
    Phrase{"memoryerror", "host_memory_full"},
    Phrase{"oom-kill", "oom_kill"},
    Phrase{"oom killed", "oom_kill"},
    Phrase{"out of memory", "gpu_memory_full"},
    // Peers. Before the general errors of the same libraries.
    Phrase{"remote process exited or there was a network error", "peer_lost"},
    Phrase{"ncclremoteerror", "peer_lost"},
    Phrase{"connection reset", "peer_lost"},
    Phrase{"connection closed", "peer_lost"},
    Phrase{"connection refused", "peer_lost"},
    Phrase{"connection timed out", "peer_lost"},
    Phrase{"broken pipe", "peer_lost"},
    Phrase{"socket closed", "peer_lost"},
    Phrase{"socket timeout", "peer_lost"},
    Phrase{"endpoint timeout", "peer_lost"},
    Phrase{"transport retry count", "peer_lost"},
    Phrase{"retry counter exceeded", "peer_lost"},
    Phrase{"wc_retry_exc_err", "peer_lost"},
    Phrase{"got completion from peer", "peer_lost"},
    Phrase{"work request flushed", "peer_lost"},
    Phrase{"watchdog caught collective operation timeout", "peer_lost"},
    Phrase{"some nccl operations have failed or timed out", "peer_lost"},
    Phrase{"nccl communicator was aborted", "peer_lost"},
    Phrase{"received sigterm", "peer_lost"},
    Phrase{"signalexception", "peer_lost"},
    Phrase{"sending process", "peer_lost"},
    Phrase{"recvvalue failed", "peer_lost"},
    Phrase{"no route to host", "peer_lost"},
    Phrase{"host is unreachable", "peer_lost"},
    Phrase{"proc_failed", "peer_lost"},
    Phrase{"has not arrived", "peer_lost"},
    Phrase{"have not arrived", "peer_lost"},
    Phrase{"nothing has come from the node", "peer_lost"},
    Phrase{"has given up", "peer_lost"},
    Phrase{"cannot be reached", "peer_lost"},
    Phrase{"could not do it", "peer_lost"},
    Phrase{"did not finish within", "peer_lost"},
    Phrase{"exchange of state with rank", "peer_lost"},
    Phrase{"cannot be exchanged", "peer_lost"},
    Phrase{"an exchange before this one failed", "peer_lost"},
    Phrase{"the agent on this node does not answer", "transient"},
    Phrase{"stale file handle", "shared_gone"},
    Phrase{"transport endpoint is not connected", "shared_gone"},
    Phrase{"cannot send after transport endpoint shutdown", "shared_gone"},
    Phrase{"input/output error", "storage_error"},
    Phrase{"remote i/o error", "storage_error"},
    Phrase{"address already in use", "port_taken"},
    Phrase{"illegal memory access", "cuda_error"},
    Phrase{"device-side assert", "cuda_error"},
    Phrase{"misaligned address", "cuda_error"},
    Phrase{"unspecified launch failure", "cuda_error"},
    Phrase{"an illegal instruction was encountered", "cuda_error"},
    Phrase{"cuda error", "cuda_error"},
    Phrase{"failed on the gpu", "cuda_error"},
    Phrase{"segmentation fault", "segmentation_fault"},
    Phrase{"bus error", "bus_error"},
    Phrase{"command not found", "cannot_start"},
};
// A path of the node's own, in a line about space.
constexpr std::array local_places{"/dev/shm",       "/tmp",   "/var/", "/run/",
                                  "/scratch/local", "/local", "/raid", "/nvme"};
constexpr std::size_t longest_line = 300, max_text = 16384;

const SignKind* kind_of_line(const std::string& line) {
  for (const Phrase& words : table) {
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
