#pragma once
// Memory that several processes of a node see. It never has a name in a file system: it is gone with the last
// process that has it mapped, however that process ended, and the size of /dev/shm does not limit it.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "src/base/files.hpp"

namespace holdfast::comm {

class SharedMemory {
 public:
  /// What another process needs to find it: plain words, so that they can travel.
  struct Handle {
    std::uint64_t process = 0, descriptor = 0, token = 0, bytes = 0;
  };

  SharedMemory() = default;
  /// New memory, zeroed. An Error (runtime) when the kernel refuses so much.
  static SharedMemory create(std::int64_t bytes);
  /// Nothing when this process cannot see that memory: another kernel, another pid namespace, another user.
  static std::optional<SharedMemory> open(const Handle& handle);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Valid until close().
  Handle handle() const;
  /// Nobody else opens it from here on; what is mapped stays.
  void close() { file_.reset(); }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

  /// Gives pages to [first, first + count) now, so that a lack of memory is an answer here (false) and not a
  /// signal later, and so that they lie near the caller's processor.
  bool populate(std::size_t first, std::size_t count) const;

 private:
  static SharedMemory map(files::Fd file, std::size_t bytes);

  files::Fd file_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t token_ = 0;
};

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t round_to_pages(std::size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace holdfast::comm
