#include "src/comm/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/units.hpp"

namespace holdfast::comm {
namespace {

/// A process number may mean somebody else in another namespace; a random word in a page of its own, behind
/// the memory itself, says that both mean the same.
std::uint64_t random_token() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device() | 1;
}

/// What the kernel could give without swapping; nothing when it does not say.
std::optional<std::size_t> available_bytes() {
  std::ifstream facts("/proc/meminfo");
  for (std::string word; facts >> word;)
    if (std::size_t kibibytes = 0; word == "MemAvailable:" && facts >> kibibytes) return kibibytes << 10;
  return std::nullopt;
}

}  // namespace

SharedMemory SharedMemory::map(files::Fd file, std::size_t bytes) {
  SharedMemory memory;
  void* at =
      mmap(nullptr, round_to_pages(bytes) + page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) throw system_error("cannot map " + size_text(bytes) + " of shared memory", errno);
  memory.file_ = std::move(file);
  memory.data_ = static_cast<std::byte*>(at);
  memory.bytes_ = bytes;
  // Only where the administrator left it to programs; refused elsewhere, which changes nothing but speed.
  madvise(at, round_to_pages(bytes), MADV_HUGEPAGE);
  return memory;
}

SharedMemory SharedMemory::create(std::int64_t bytes) {
  expects(bytes >= 0, "an amount of memory");
  const auto wanted = as_size(bytes);
  if (const auto available = available_bytes(); available && wanted > *available)
    throw Error(Exit::runtime, "no " + size_text(wanted) + " of shared memory for the ranks of a node",
                size_text(*available) + " are available", "Use fewer ranks per node, or a smaller model?");
  files::Fd file(memfd_create("holdfast", MFD_CLOEXEC));
  if (!file) throw system_error("cannot create shared memory", errno);
  if (ftruncate(file.get(), static_cast<off_t>(round_to_pages(wanted) + page_bytes)) != 0)
    throw system_error("cannot get " + size_text(wanted) + " of shared memory", errno,
                       "Use fewer ranks per node, or a smaller model?");
  SharedMemory memory = map(std::move(file), wanted);
  memory.token_ = random_token();
  std::memcpy(memory.data_ + round_to_pages(wanted), &memory.token_, sizeof memory.token_);
  return memory;
}

std::optional<SharedMemory> SharedMemory::open(const Handle& handle) {
  files::Fd file(
      ::open(fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor).c_str(), O_RDWR | O_CLOEXEC));
  struct stat facts {};
  const std::size_t whole = round_to_pages(handle.bytes) + page_bytes;
  if (!file || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode) || as_size(facts.st_size) != whole)
    return std::nullopt;
  SharedMemory memory = map(std::move(file), handle.bytes);
  std::memcpy(&memory.token_, memory.data_ + whole - page_bytes, sizeof memory.token_);
  if (memory.token_ != handle.token) return std::nullopt;
  memory.close();
  return memory;
}

SharedMemory::Handle SharedMemory::handle() const {
  expects(static_cast<bool>(file_), "shared memory that may still be opened");
  return {static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(file_.get()), token_, bytes_};
}

bool SharedMemory::populate(std::size_t first, std::size_t count) const {
  if (count == 0) return true;
#ifdef MADV_POPULATE_WRITE
  if (madvise(data_ + first, count, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
#endif
  std::memset(data_ + first, 0, count);  // a kernel before 5.14
  return true;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(token_, other.token_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, round_to_pages(bytes_) + page_bytes);
}

}  // namespace holdfast::comm
