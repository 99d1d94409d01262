#include "tests/cuda/sim/sim_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "tests/cuda/sim/finding.hpp"

namespace holdfast::cuda::sim {
namespace {

constexpr std::int64_t memory_page = 4096;
constexpr std::byte poisoned{0xff};

std::int64_t whole_pages(std::int64_t bytes) { return (bytes + memory_page - 1) / memory_page * memory_page; }

/// `bytes` (whole pages) of `file` (-1: of nothing) between two pages that trap.
std::byte* map_guarded(std::int64_t bytes, int file) {
  const auto size = as_size(bytes);
  void* around =
      mmap(nullptr, size + 2 * memory_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (around == MAP_FAILED) throw system_error("no addresses for simulated memory", errno);
  auto* data = static_cast<std::byte*>(around) + memory_page;
  const int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (mmap(data, size, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED)
    throw system_error("no pages for simulated memory", errno);
  return data;
}
void unmap_guarded(std::byte* data, std::int64_t bytes) {
  munmap(data - memory_page, as_size(bytes + 2 * memory_page));
}

void unmap(const Region& region) {
  if (region.kind != Kind::registered) {
    unmap_guarded(region.data, region.mapped);
    if (region.file >= 0) ::close(region.file);
  } else if (region.data != region.host) {
    munmap(region.data - reinterpret_cast<std::uintptr_t>(region.data) % memory_page, as_size(region.mapped));
  }
}

/// What an IpcHandle holds.
struct Ticket {
  char magic[8];
  std::int32_t process, file;
  std::int64_t bytes, mapped;
};
constexpr char magic[8] = "simgpu1";
static_assert(sizeof(Ticket) <= sizeof(IpcHandle));

/// Whose access the next fault is. Faults come on the thread that runs the operation, or by the host
/// meanwhile.
thread_local constinit const char* running = nullptr;

void on_fault(int signal, siginfo_t* info, void*) {
  char text[300];
  const auto* name = running;
  const int n = std::snprintf(
      text, sizeof text, "simulated GPU: %s%s touched %p, which %s\n",
      name != nullptr ? "the operation " : "the host", name != nullptr ? name : "", info->si_addr,
      name != nullptr ? "it did not declare so (or which is nobody's)" : "is the GPU's (or nobody's)");
  if (n > 0 && write(STDERR_FILENO, text, std::min(as_size(n), sizeof text)) < 0) _exit(1);
  ::signal(signal, SIG_DFL);  // the fault comes again and ends the process
}

void install_fault_handler() {
  static const bool once = [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &action, nullptr) == 0;
  }();
  if (!once) throw Finding("no handler for faults");
}

void check_size(std::int64_t bytes, const char* call) {
  if (bytes <= 0) throw Finding(fmt::format("{} of {} bytes", call, bytes));
}

}  // namespace

SimMemory::SimMemory(std::int64_t device_bytes, bool guard) : limit_(device_bytes), guard_(guard) {
  if (guard) install_fault_handler();
}

SimMemory::~SimMemory() {
  for (const auto& [data, region] : regions_) unmap(region);
}

std::byte* SimMemory::add(Region region) {
  regions_[region.data] = region;
  if (guarded(region)) mprotect(region.data, as_size(region.mapped), PROT_NONE);
  return region.data;
}

std::byte* SimMemory::device_alloc(std::int64_t bytes) {
  check_size(bytes, "device_alloc");
  const std::int64_t mapped = whole_pages(bytes);
  if (mapped > free_bytes())
    throw Error(Exit::runtime, fmt::format("the GPU has no {} bytes left", bytes),
                fmt::format("{} of {} bytes are free", free_bytes(), limit_));
  const int file = memfd_create("holdfast-sim-gpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, mapped) != 0) throw system_error("cannot make simulated memory", errno);
  std::byte* data = map_guarded(mapped, file);
  std::fill_n(data, mapped, poisoned);
  used_ += mapped;
  return add({Kind::device, data, bytes, mapped, file, nullptr});
}

std::byte* SimMemory::host_alloc(std::int64_t bytes) {
  check_size(bytes, "host_alloc");
  const std::int64_t mapped = whole_pages(bytes);
  std::byte* data = map_guarded(mapped, -1);
  std::fill_n(data, mapped, poisoned);
  return add({Kind::pinned, data, bytes, mapped, -1, data});
}

std::byte* SimMemory::host_register(void* memory, std::int64_t bytes) {
  check_size(bytes, "host_register");
  auto* host = static_cast<std::byte*>(memory);
  const auto offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory) % memory_page);
  const std::int64_t mapped = whole_pages(offset + bytes);
  // Of length 0: a second mapping of the same pages; refused for pages that are not shared.
  void* second = mremap(host - offset, 0, as_size(mapped), MREMAP_MAYMOVE);
  std::byte* data = second == MAP_FAILED ? host : static_cast<std::byte*>(second) + offset;
  return add({Kind::registered, data, bytes, mapped, -1, host});
}

IpcHandle SimMemory::ipc_export(void* memory) const {
  const Region& region = whole(memory, Kind::device, "ipc_export");
  Ticket ticket{{}, getpid(), region.file, region.bytes, region.mapped};
  std::memcpy(ticket.magic, magic, sizeof magic);
  IpcHandle handle{};
  std::memcpy(handle.data(), &ticket, sizeof ticket);
  return handle;
}

std::byte* SimMemory::ipc_open(const IpcHandle& handle, std::int64_t bytes) {
  Ticket ticket;
  std::memcpy(&ticket, handle.data(), sizeof ticket);
  if (std::memcmp(ticket.magic, magic, sizeof magic) != 0)
    throw Finding("ipc_open of what ipc_export did not give");
  if (ticket.process == getpid()) throw Finding("ipc_open of this process's own memory");
  if (ticket.bytes != bytes)
    throw Finding(fmt::format("ipc_open of {} bytes, but {} were exported", bytes, ticket.bytes));
  const std::string path = fmt::format("/proc/{}/fd/{}", ticket.process, ticket.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw system_error("cannot open a peer's simulated memory " + path, errno);
  std::byte* data = map_guarded(ticket.mapped, file);
  return add({Kind::peer, data, bytes, ticket.mapped, file, nullptr});
}

const Region& SimMemory::whole(const void* memory, Kind kind, const char* call) const {
  for (const auto& [data, region] : regions_)
    if (region.kind == kind && (kind == Kind::registered ? region.host : region.data) == memory)
      return region;
  throw Finding(fmt::format("{} of {}, which is not (or no longer) the beginning of such memory", call,
                            static_cast<const void*>(memory)));
}

const Region* SimMemory::find(const void* data, std::int64_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  auto next = regions_.upper_bound(begin);
  if (next == regions_.begin()) return nullptr;
  const Region& region = std::prev(next)->second;
  return begin + bytes <= region.data + region.bytes ? &region : nullptr;
}

void SimMemory::release(const Region& ending) {
  const Region region = ending;  // it may be the map's own
  regions_.erase(region.data);
  if (guarded(region)) mprotect(region.data, as_size(region.mapped), PROT_READ);
  const bool padded = region.kind == Kind::device || region.kind == Kind::pinned;
  const bool whole_end = !padded || std::all_of(region.data + region.bytes, region.data + region.mapped,
                                                [](std::byte x) { return x == poisoned; });
  unmap(region);
  if (region.kind == Kind::device) used_ -= region.mapped;
  if (!whole_end)
    throw Finding(fmt::format("something wrote behind the end of {} bytes of memory", region.bytes));
}

/// Changing the protection of many pages at every operation would take longer than the operations.
bool SimMemory::guarded(const Region& region) const {
  constexpr std::int64_t largest = 16 << 20;
  return guard_ && (region.kind == Kind::device || region.kind == Kind::peer) && region.mapped <= largest;
}

void SimMemory::protect(const Access& access, int protection) {
  const Region* region = access.bytes > 0 ? find(access.data, access.bytes) : nullptr;
  if (region == nullptr || !guarded(*region)) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(access.data) / memory_page * memory_page;
  const auto end = reinterpret_cast<std::uintptr_t>(access.data) + static_cast<std::uintptr_t>(access.bytes);
  mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}

void SimMemory::open(const std::vector<Access>& accesses, const char* name) {
  running = name;
  if (!guard_) return;
  for (const Access& access : accesses)
    if (!access.writes) protect(access, PROT_READ);
  for (const Access& access : accesses)
    if (access.writes) protect(access, PROT_READ | PROT_WRITE);
}

void SimMemory::close(const std::vector<Access>& accesses) {
  running = nullptr;
  if (!guard_) return;
  for (const Access& access : accesses) protect(access, PROT_NONE);
}

}  // namespace holdfast::cuda::sim
