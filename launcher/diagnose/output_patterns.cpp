// meaning_of() compares each line of what a rank wrote last (16 KiB at most) with the table, in lower case.
// The first row that matches gives the line its kind, and the heaviest kind of all lines is the meaning; of
// equally heavy ones the first line. Faults of storage that a program may survive count only if no signal
// told the rank to end, and only in the last tracebacks or else the last 12 lines: end_begins() finds where
// these begin.
//
// Where no line matches, the status decides (kind_of_status()), and the last line is the evidence if the
// status blames anything. An exit code of Holdfast that means that another try ends the same way also wins
// over lighter messages.
//
// A new row needs a text in lower case, the name of a row of sign_kinds() (expects() refuses any other), and
// a place above rows with more general texts.
#include "launcher/diagnose/output_patterns.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <csignal>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::launcher {
namespace {

struct OutputPattern {
  const char* text;  ///< in lower case
  const char* kind;
};
// Messages of PyTorch, CUDA, NCCL, UCX, Open MPI, the C library and Holdfast. The first row that matches a
// line counts: specific rows come before general ones.
constexpr std::array table{
    // Before the system error that is its reason.
    OutputPattern{"cannot be read now", "checkpoint_unreadable"},
    OutputPattern{"cannot create a process", "node_limit"},
    OutputPattern{"processes that it had started went on after its end", "left_running"},
    OutputPattern{"uncorrectable ecc error", "ecc_uncorrected"},
    OutputPattern{"eccuncorrectable", "ecc_uncorrected"},
    OutputPattern{"uncorrectable nvlink", "nvlink_error"},
    OutputPattern{"nvlinkuncorrectable", "nvlink_error"},
    OutputPattern{"hardware error on the nvlink", "nvlink_error"},
    OutputPattern{"gpu is lost", "gpu_lost"},
    OutputPattern{"fallen off the bus", "gpu_lost"},
    OutputPattern{"no cuda-capable device", "gpu_lost"},
    OutputPattern{"cuda_error_no_device", "gpu_lost"},
    OutputPattern{"system not yet initialized", "fabric_not_ready"},
    OutputPattern{"systemnotready", "fabric_not_ready"},
    OutputPattern{"devices are busy or unavailable", "gpu_busy"},
    OutputPattern{"device(s) is/are busy or unavailable", "gpu_busy"},
    OutputPattern{"deviceunavailable", "gpu_busy"},
    OutputPattern{"local catastrophic error", "nic_failed"},
    OutputPattern{"device fatal", "nic_failed"},
    OutputPattern{"async event: port error", "link_down"},
    OutputPattern{"async event: port active", "link_up"},
    OutputPattern{"network is down", "link_down"},
    OutputPattern{"read-only file system", "disk_read_only"},
    // No space. The path is in the same line.
    OutputPattern{"no room for the local level", "no_space_local"},
    OutputPattern{"of shared memory for", "no_space_local"},
    OutputPattern{"no space left on device", "no_space"},
    OutputPattern{"disk quota exceeded", "no_space"},
    OutputPattern{"no room for a checkpoint", "no_space"},
    OutputPattern{"out of disk space", "no_space"},
    OutputPattern{"cuda out of memory", "gpu_memory_full"},
    OutputPattern{"outofmemoryerror", "gpu_memory_full"},
    OutputPattern{"cudaerrormemoryallocation", "gpu_memory_full"},
    OutputPattern{"no room on the gpu", "gpu_memory_full"},
    OutputPattern{"cannot allocate memory", "host_memory_full"},
    OutputPattern{"can't allocate memory", "host_memory_full"},
    OutputPattern{"bad_alloc", "host_memory_full"},
    OutputPattern{"memoryerror", "host_memory_full"},
    OutputPattern{"oom-kill", "oom_kill"},
    OutputPattern{"oom killed", "oom_kill"},
    OutputPattern{"out of memory", "gpu_memory_full"},
    // Peers. Before the general errors of the same libraries.
    OutputPattern{"remote process exited or there was a network error", "peer_lost"},
    OutputPattern{"ncclremoteerror", "peer_lost"},
    OutputPattern{"connection reset", "peer_lost"},
    OutputPattern{"connection closed", "peer_lost"},
    OutputPattern{"connection refused", "peer_lost"},
    OutputPattern{"connection timed out", "peer_lost"},
    OutputPattern{"broken pipe", "peer_lost"},
    OutputPattern{"socket closed", "peer_lost"},
    OutputPattern{"socket timeout", "peer_lost"},
    OutputPattern{"endpoint timeout", "peer_lost"},
    OutputPattern{"transport retry count", "peer_lost"},
    OutputPattern{"retry counter exceeded", "peer_lost"},
    OutputPattern{"wc_retry_exc_err", "peer_lost"},
    OutputPattern{"got completion from peer", "peer_lost"},
    OutputPattern{"work request flushed", "peer_lost"},
    OutputPattern{"watchdog caught collective operation timeout", "peer_lost"},
    OutputPattern{"some nccl operations have failed or timed out", "peer_lost"},
    OutputPattern{"nccl communicator was aborted", "peer_lost"},
    OutputPattern{"received sigterm", "peer_lost"},
    OutputPattern{"signalexception", "peer_lost"},
    OutputPattern{"sending process", "peer_lost"},
    OutputPattern{"recvvalue failed", "peer_lost"},
    OutputPattern{"no route to host", "peer_lost"},
    OutputPattern{"host is unreachable", "peer_lost"},
    OutputPattern{"proc_failed", "peer_lost"},
    OutputPattern{"has not arrived", "peer_lost"},
    OutputPattern{"have not arrived", "peer_lost"},
    OutputPattern{"nothing has come from the node", "peer_lost"},
    OutputPattern{"has given up", "peer_lost"},
    OutputPattern{"cannot be reached", "peer_lost"},
    OutputPattern{"could not do it", "peer_lost"},
    OutputPattern{"did not finish within", "peer_lost"},
    OutputPattern{"exchange of state with rank", "peer_lost"},
    OutputPattern{"cannot be exchanged", "peer_lost"},
    OutputPattern{"an exchange before this one failed", "peer_lost"},
    OutputPattern{"the agent on this node does not answer", "transient"},
    OutputPattern{"stale file handle", "shared_gone"},
    OutputPattern{"transport endpoint is not connected", "shared_gone"},
    OutputPattern{"cannot send after transport endpoint shutdown", "shared_gone"},
    OutputPattern{"input/output error", "storage_error"},
    OutputPattern{"remote i/o error", "storage_error"},
    OutputPattern{"address already in use", "port_taken"},
    OutputPattern{"illegal memory access", "cuda_error"},
    OutputPattern{"device-side assert", "cuda_error"},
    OutputPattern{"misaligned address", "cuda_error"},
    OutputPattern{"unspecified launch failure", "cuda_error"},
    OutputPattern{"an illegal instruction was encountered", "cuda_error"},
    OutputPattern{"cuda error", "cuda_error"},
    OutputPattern{"failed on the gpu", "cuda_error"},
    OutputPattern{"segmentation fault", "segmentation_fault"},
    OutputPattern{"bus error", "bus_error"},
    OutputPattern{"command not found", "cannot_start"},
};
// Paths on the node's own file systems, in a line about space.
constexpr std::array local_places{"/dev/shm",       "/tmp",   "/var/", "/run/",
                                  "/scratch/local", "/local", "/raid", "/nvme"};
constexpr std::size_t longest_line = 300, max_text = 16384;
constexpr std::size_t end_lines = 12;  // an error is followed by few: the farewell of a library, or of MPI

const SignKind* kind_of_line(const std::string& line) {
  for (const OutputPattern& pattern : table) {
    if (line.find(pattern.text) == std::string::npos) continue;
    const SignKind* kind = kind_called(pattern.kind);
    expects(kind, "every pattern names a kind of sign");
    const bool local = std::any_of(local_places.begin(), local_places.end(), [&](const char* place) {
      const auto at = line.find(place);  // where a path begins, not inside of one
      return at != std::string::npos && (at == 0 || !std::isalnum(static_cast<unsigned char>(line[at - 1])));
    });
    return std::string_view(kind->name) == "no_space" && local ? kind_called("no_space_local") : kind;
  }
  return nullptr;
}

/// A program may log such a fault of storage, and go on.
bool may_be_survived(const SignKind& kind) {
  for (const char* name : {"no_space", "no_space_local", "shared_gone", "storage_error"})
    if (kind.name == std::string_view(name)) return true;
  return false;
}

/// Lines that are not blank, each cut.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, std::min(end, longest_line));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) out.emplace_back(line);
  }
  return out;
}

/// The first of the lines that are about the end of the program: of its last tracebacks, one the reason of
/// the next, or else of the last few.
std::size_t end_begins(const std::vector<std::string>& lines) {
  const auto has = [&](std::size_t i, std::string_view text) {
    return lines[i].find(text) != std::string::npos;
  };
  // PyTorch writes "[rank3]: " before each line.
  const auto indented = [&](std::size_t i) {
    const auto prefix = lines[i].starts_with('[') ? lines[i].find("]: ") : std::string::npos;
    const std::size_t at = prefix == std::string::npos ? 0 : prefix + 3;
    return at < lines[i].size() && lines[i][at] == ' ';
  };
  const std::size_t last_few = lines.size() - std::min(lines.size(), end_lines);
  std::size_t first = lines.size();
  for (std::size_t i = lines.size(); i-- > 0;) {
    if (!has(i, "Traceback (most recent call last)")) continue;
    std::size_t error = i + 1;
    while (error < lines.size() && indented(error)) ++error;
    const bool leads_on = error + 1 < first && (has(error + 1, "During handling of the above exception") ||
                                                has(error + 1, "The above exception was the direct cause"));
    if (first == lines.size() ? error < last_few : !leads_on || error + 2 != first) break;
    first = i;
  }
  return first == lines.size() ? last_few : first;
}

const char* kind_of_status(int status, bool output) {
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
    case 128 + SIGPIPE:  // the reader has ended
      return "terminated";
  }
  return output ? "own_error" : "exit_code";
}

/// Ranks named as "rank 7", "ranks 3, 5", "[Rank 2]", without the rank that wrote the line.
std::vector<int> ranks_named_in(const std::string& line, int writer) {
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
      if (rank != writer && std::find(out.begin(), out.end(), rank) == out.end()) out.push_back(rank);
      p = next;
      more = p < end && *p == ',';
      if (more) ++p;
    }
  }
  return out;
}

}  // namespace

bool is_final(int status) {
  for (const Exit code : {Exit::usage, Exit::impossible, Exit::unhealthy, Exit::no_requeue})
    if (status == static_cast<int>(code)) return true;
  return false;
}

Meaning meaning_of(int rank, int status, std::string_view said, bool our_codes) {
  if (said.size() > max_text) said.remove_prefix(said.size() - max_text);
  const std::vector<std::string> lines = lines_of(said);
  const std::string last_line = lines.empty() ? "" : lines.back();
  const bool refuses = our_codes && is_final(status);
  const SignKind* by_status = kind_called(refuses ? "refused" : kind_of_status(status, !lines.empty()));
  const bool failed = std::string_view(by_status->name) != "terminated";
  const std::size_t end = end_begins(lines);
  Meaning best;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string low = lower(lines[i]);
    const SignKind* kind = kind_of_line(low);
    if (!kind || (best.kind && kind->weight <= best.kind->weight)) continue;
    if (may_be_survived(*kind) && (i < end || !failed)) continue;
    best.kind = kind;
    best.line = lines[i];
    best.peers = std::string_view(kind->name) == "peer_lost" ? ranks_named_in(low, rank) : std::vector<int>{};
  }
  // A process that is ended from outside does not write why; other programs write their error last. A message
  // about a lost peer says more than the status of the rank that wrote it; an exit code that means "do not
  // try again" says more than the message.
  if (!best.kind || (refuses && best.kind->weight < by_status->weight))
    return {by_status, by_status->blame == Blame::nothing ? "" : last_line, {}};
  return best;
}

}  // namespace holdfast::launcher
