#pragma once
// The local level: one rank's state in a file that is mapped into memory (in /dev/shm or on the node's disk)
// and outlives the process. It has several snapshot buffers, each for a whole snapshot: while one is
// written, another is whole, so a step that all ranks have always exists. No HDF5, no MPI. FORMAT.md has the
// bytes.
//
//   buffer    what happens to it                          next
//   open      written by the optimizer or by a copy       seal() -> sealed
//   sealed    immutable; digested, named by its step      open() -> open
//
// A process that dies leaves the buffer that it wrote open, and the others sealed.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/state.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// What a local file belongs to. A file of any other identity is not used.
struct LocalIdentity {
  std::uint64_t run = 0;  ///< hash of everything that two states must share to be of one run and arithmetic
  std::uint64_t layout = 0;  ///< hash of tensors and pieces
  int rank = 0;              ///< whose state; on its partner's node the same rank as on its own
  int world = 1;  ///< ranks of the run when the file was made, for people: a run that lost a replica, or got
                  ///< it back, goes on with the same pieces
  bool operator==(const LocalIdentity& other) const {
    return run == other.run && layout == other.layout && rank == other.rank;
  }
};

/// What a sealed buffer holds.
struct Sealed {
  RunPoint point;
  std::vector<std::uint64_t> digests;  ///< one per piece of the rank, in the order of StateViews::held.pieces
  bool operator==(const Sealed&) const = default;
};

/// As a record has it, and as it travels with a copy: one line of JSON.
std::string to_text(const Sealed& what);
/// Nothing when that is not what to_text() gave.
std::optional<Sealed> sealed_from_text(std::string_view text);

class LocalFile {
 public:
  /// The file at `path`, mapped; made anew when it is missing, of another identity or size, or damaged in its
  /// head. Its folder is made, too, and has to be this user's alone. `buffer_bytes`: of one snapshot.
  /// `record_room`: bytes for the text of one record. `reset`: what it holds is void. Throws Error (runtime)
  /// that says how much was asked for and how much there is; memory is allocated and touched here, never
  /// later.
  LocalFile(fs::path path, const LocalIdentity& identity, std::int64_t buffer_bytes, int buffers, bool reset,
            std::int64_t record_room = 1 << 20);
  /// An existing file for reading, never for open() and seal(); nothing when there is none with this identity
  /// and size.
  static std::optional<LocalFile> find(const fs::path& path, const LocalIdentity& identity,
                                       std::int64_t buffer_bytes);
  /// The same of any identity, for people and tests.
  static std::optional<LocalFile> find(const fs::path& path);
  LocalFile(LocalFile&&) noexcept;
  LocalFile& operator=(LocalFile&&) noexcept;
  ~LocalFile();  ///< unmaps; the file stays

  LocalIdentity identity() const;
  int buffers() const;
  /// Memory of a buffer, aligned to 4096.
  std::span<std::byte> buffer(int index) const;
  /// What a buffer holds, when it is sealed and its record is whole; the data are not read.
  std::optional<Sealed> sealed(int index) const;
  /// Before the first byte of a buffer is changed.
  void open(int index);
  /// The buffer's data are whole; nobody changes them until open(). `what.digests` were computed from them.
  /// An Error (runtime) when the record has no room for it; the buffer then stays open.
  void seal(int index, const Sealed& what);
  const fs::path& path() const;

 private:
  LocalFile();
  struct Map;
  std::unique_ptr<Map> map_;
};

/// A local file as people see it: whose it is, and what its buffers hold. The data are neither read nor
/// mapped.
struct LocalOutline {
  LocalIdentity identity;
  std::int64_t buffer_bytes = 0;
  std::vector<std::optional<Sealed>> buffers;  ///< nothing: open, or its record is not whole
};
/// Of any local file; nothing when `path` is none.
std::optional<LocalOutline> outline_of(const fs::path& path);

/// Digests of pieces as a seal has them; `state` names the pieces and their memory.
std::vector<std::uint64_t> piece_digests(const State& state);

}  // namespace holdfast::checkpoint
