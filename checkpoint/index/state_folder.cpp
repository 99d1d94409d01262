// A rank's snapshots as mapped files; the header has their life cycle, FORMAT.md what is in them.
//
// The constructor looks at what is there (outline_of), removes all of it where sizes or identity differ, and
// then reserves and touches every page, so that no later write finds the folder full. open() clears the first
// word of a seal before the data change. seal() writes the seal behind its first word, and that word last: a
// reader sees a whole seal or none, and so does whoever comes after a process that died in between. A seal
// that is not of this identity counts as none.
#include "checkpoint/index/state_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"
#include "src/snapshot/seal.hpp"

namespace holdfast::checkpoint {
namespace {

using nlohmann::json;

constexpr int max_buffers = 16;
constexpr std::int64_t seal_frame = 256;  ///< of a seal, what is not to_text() of what is sealed

fs::path data_path(const fs::path& path, int buffer) {
  return path / std::to_string(buffer) / "state.buffer";
}
fs::path seal_path(const fs::path& path, int buffer) { return path / std::to_string(buffer) / "seal"; }

/// A whole file in memory. Its pages are there from the beginning: a write never finds the folder full.
class Mapping {
 public:
  Mapping(int fd, std::int64_t bytes, bool writable, const fs::path& path) : bytes_(as_size(bytes)) {
    if (bytes == 0) return;
    void* const at =
        ::mmap(nullptr, bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) throw system_error("cannot map " + path.string(), errno);
    base_ = static_cast<std::byte*>(at);
    ::madvise(base_, bytes_, MADV_HUGEPAGE);  // only a hint
    // Older kernels (before 5.14) do not know it; the pages are allocated all the same, and come when used.
    if (::madvise(base_, bytes_, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0 &&
        errno != EINVAL) {
      const int error = errno;
      ::munmap(base_, bytes_);
      throw system_error(fmt::format("no memory for the {} bytes of {}", bytes, path.string()), error);
    }
  }
  Mapping(Mapping&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  ~Mapping() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }
  std::span<std::byte> span() const { return {base_, bytes_}; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_;
};

std::string why_no_room(const fs::path& path, std::int64_t bytes, const std::exception& error) {
  struct statvfs room {};
  std::string text = fmt::format("{} bytes are needed", bytes);
  if (::statvfs(path.parent_path().c_str(), &room) == 0)
    text += fmt::format(", {} are free in {}", static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize,
                        path.parent_path().parent_path().string());
  return fmt::format("{}: {}", text, error.what());
}

/// What the note of a seal says beside the seal itself.
json json_of(const Sealed& what) {
  return {{"step", what.point.step},         {"tokens", what.point.tokens},   {"samples", what.point.samples},
          {"detector", what.point.detector}, {"scaling", what.point.scaling}, {"digests", what.digests}};
}

Sealed sealed_in(const json& record) {
  Sealed out;
  record.at("step").get_to(out.point.step);
  record.at("tokens").get_to(out.point.tokens);
  record.at("samples").get_to(out.point.samples);
  record.at("detector").get_to(out.point.detector);
  record.at("scaling").get_to(out.point.scaling);
  record.at("digests").get_to(out.digests);
  return out;
}

std::string seal_text(const LocalIdentity& identity, std::int64_t buffer_bytes, const Sealed& what) {
  json note = json_of(what);
  note.update({{"run", identity.run}, {"layout", identity.layout}, {"rank", identity.rank}});
  snapshot::Seal seal{.step = what.point.step, .world = identity.world, .note = note.dump()};
  if (buffer_bytes > 0)
    seal.buffers = {
        {"state", buffer_bytes, snapshot::crc32_of(0, what.digests.data(), 8 * what.digests.size())}};
  return snapshot::to_text(seal);
}

struct Found {
  LocalIdentity identity;
  Sealed what;
};
/// Nothing: it is no seal, or not one of a trainer.
std::optional<Found> found_in(const std::string& text) try {
  const auto seal = snapshot::seal_of(text);
  if (!seal) return std::nullopt;
  const json note = json_from(seal->note);
  return Found{{note.at("run"), note.at("layout"), note.at("rank"), seal->world}, sealed_in(note)};
} catch (const json::exception&) {
  return std::nullopt;
}

/// Nothing: it is absent. What cannot be opened for another reason (no descriptor is left) may hold a state.
std::optional<files::Fd> opened(const fs::path& path) {
  files::Fd fd = files::try_open(path, O_RDONLY | O_NOFOLLOW);
  if (fd) return fd;
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw system_error("cannot open " + path.string(), errno);
}

std::int64_t size_of(const files::Fd& fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw system_error("cannot look at a snapshot", errno);
  return info.st_size;
}

}  // namespace

struct StateFolder::Map {
  struct Generation {
    Mapping data, seal;
  };
  fs::path path;
  LocalIdentity identity;
  bool writable;
  std::vector<Generation> generations = {};

  /// The next generation; where it is written, its files have their room from now on.
  void add(std::int64_t buffer_bytes, std::int64_t seal_bytes) {
    const auto buffer = static_cast<int>(generations.size());
    generations.push_back(
        {mapped(data_path(path, buffer), buffer_bytes), mapped(seal_path(path, buffer), seal_bytes)});
  }
  Mapping mapped(const fs::path& file, std::int64_t bytes) const {
    const files::Fd fd = files::open(file, (writable ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW, 0600);
    if (const int error = writable && bytes > 0 ? files::reserve(fd.get(), bytes) : 0; error != 0)
      throw system_error("cannot make " + file.string(), error);
    return {fd.get(), bytes, writable, file};
  }
  const Generation& at(int buffer) const {
    expects(buffer >= 0 && as_size(buffer) < generations.size(), "a buffer of the local level");
    return generations[as_size(buffer)];
  }
  /// The first eight letters of a seal; 0: the buffer is open.
  std::atomic_ref<std::uint64_t> first_word(int buffer) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at(buffer).seal.span().data()));
  }
};

StateFolder::StateFolder(fs::path path, const LocalIdentity& identity, std::int64_t buffer_bytes, int buffers,
                         bool reset, std::int64_t record_room) {
  expects(buffers >= 1 && buffers <= max_buffers && buffer_bytes >= 0 && record_room >= 0,
          "sizes of snapshots");
  const std::int64_t seal_bytes = record_room + seal_frame;
  files::make_private_folder(path.parent_path());
  // Other files under the same names, never the same files in another shape: somebody may still have them
  // mapped.
  if (const auto there = outline_of(path);
      !there || there->buffer_bytes != buffer_bytes || there->seal_bytes != seal_bytes ||
      std::ssize(there->buffers) != buffers || there->identity.value_or(identity) != identity)
    fs::remove_all(path);
  map_.reset(new Map{path, identity, true});
  try {
    for (int buffer = 0; buffer < buffers; ++buffer) {
      fs::create_directories(path / std::to_string(buffer));
      map_->add(buffer_bytes, seal_bytes);
      if (reset) open(buffer);
    }
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
    throw Error(Exit::runtime, "no room for the local level " + path.string(),
                why_no_room(path, buffers * (buffer_bytes + seal_bytes), error),
                "Give it another folder (checkpoint.local), or none; or shard over more ranks?");
  }
}

std::optional<StateFolder> StateFolder::find(const fs::path& path, const LocalIdentity& identity,
                                             std::int64_t buffer_bytes) {
  const auto there = outline_of(path);
  if (!there || there->identity != identity || there->buffer_bytes != buffer_bytes) return std::nullopt;
  StateFolder out;
  out.map_.reset(new Map{path, identity, false});
  for (std::size_t i = 0; i < there->buffers.size(); ++i) out.map_->add(buffer_bytes, there->seal_bytes);
  return out;
}

StateFolder::StateFolder() = default;
StateFolder::StateFolder(StateFolder&&) noexcept = default;
StateFolder& StateFolder::operator=(StateFolder&&) noexcept = default;
StateFolder::~StateFolder() = default;

int StateFolder::buffers() const { return static_cast<int>(map_->generations.size()); }
const fs::path& StateFolder::path() const { return map_->path; }
std::span<std::byte> StateFolder::buffer(int index) const { return map_->at(index).data.span(); }

std::optional<Sealed> StateFolder::sealed(int index) const {
  if (map_->first_word(index).load(std::memory_order_acquire) == 0) return std::nullopt;
  // Read as it was copied: another process may be writing.
  const auto memory = map_->at(index).seal.span();
  const auto* const text = reinterpret_cast<const char*>(memory.data());
  auto found = found_in(std::string(text, ::strnlen(text, memory.size())));
  if (!found || found->identity != map_->identity) return std::nullopt;
  return std::move(found->what);
}

void StateFolder::open(int index) {
  expects(map_->writable, "snapshots that were found are only read");
  map_->first_word(index).store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // no byte of the data changes before it
}

void StateFolder::seal(int index, const Sealed& what) {
  open(index);
  const auto memory = map_->at(index).seal.span();
  const std::string text = seal_text(map_->identity, std::ssize(buffer(index)), what);
  if (text.size() >= memory.size())
    throw Error(Exit::runtime, "a snapshot cannot be sealed in " + map_->path.string(),
                fmt::format("its seal has {} bytes, and there is room for {}", text.size(), memory.size()));
  std::uint64_t first = 0;
  std::memcpy(&first, text.data(), sizeof first);
  std::memcpy(memory.data() + sizeof first, text.c_str() + sizeof first, text.size() + 1 - sizeof first);
  map_->first_word(index).store(first, std::memory_order_release);
}

std::string to_text(const Sealed& what) { return json_of(what).dump(); }

std::optional<Sealed> sealed_from_text(std::string_view text) try {
  return sealed_in(json_from(text));
} catch (const json::exception&) {
  return std::nullopt;
}

std::optional<StateOutline> outline_of(const fs::path& path) {
  StateOutline out;
  for (int buffer = 0; buffer < max_buffers; ++buffer) {
    const auto data = opened(data_path(path, buffer));
    const auto seal = opened(seal_path(path, buffer));
    if (!data || !seal) break;
    const auto bytes = size_of(*data), seal_bytes = size_of(*seal);
    if (buffer > 0 && (bytes != out.buffer_bytes || seal_bytes != out.seal_bytes)) return std::nullopt;
    out.buffer_bytes = bytes;
    out.seal_bytes = seal_bytes;
    std::string text(as_size(seal_bytes), '\0');
    const bool read = ::pread(seal->get(), text.data(), text.size(), 0) == std::ssize(text);
    const auto found = read ? found_in(text) : std::nullopt;
    out.buffers.push_back(found ? std::optional(found->what) : std::nullopt);
    if (found && out.identity && *out.identity != found->identity) return std::nullopt;
    if (found) out.identity = found->identity;
  }
  if (out.buffers.empty()) return std::nullopt;
  return out;
}

std::vector<std::uint64_t> piece_digests(const State& state) {
  std::vector<std::uint64_t> digests;
  digests.reserve(state.pieces.size());
  for (const PieceView& piece : state.pieces)
    digests.push_back(digest_part(static_cast<std::uint64_t>(piece.first), piece.data,
                                  state.tensors[piece.tensor].type, piece.count));
  return digests;
}

}  // namespace holdfast::checkpoint
