#include "checkpoint/index/local_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/strict_json.hpp"

namespace holdfast::checkpoint {
namespace {

using nlohmann::json;

constexpr std::int64_t page = 4096;
constexpr int max_buffers = 16;
constexpr std::int64_t max_bytes = std::int64_t{1} << 50;  // beyond it a head is nonsense
constexpr std::uint64_t magic = 0x004c41434f4c4648;        // "HFLOCAL"
constexpr std::uint64_t file_version = 1;

static_assert(std::endian::native == std::endian::little, "the file has the machine's own integers");

std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

/// The first bytes of the file.
struct Head {
  std::uint64_t magic = 0, version = 0;
  std::uint64_t run = 0, layout = 0;
  std::int64_t rank = 0, world = 0;
  std::int64_t buffers = 0, buffer_bytes = 0, record_bytes = 0;
  std::uint64_t xxh3 = 0;  ///< XXH3-64 of the words before it

  std::uint64_t hash() const { return XXH3_64bits(this, offsetof(Head, xxh3)); }
  std::int64_t record_room() const { return round_up(record_bytes + record_head, page); }
  std::int64_t record_at(int buffer) const { return page + buffer * record_room(); }
  std::int64_t buffer_at(int buffer) const {
    return record_at(static_cast<int>(buffers)) + buffer * round_up(buffer_bytes, page);
  }
  std::int64_t file_bytes() const { return buffer_at(static_cast<int>(buffers)); }
  bool whole() const {
    return magic == checkpoint::magic && version == file_version && xxh3 == hash() && buffers >= 1 &&
           buffers <= max_buffers && buffer_bytes >= 0 && buffer_bytes <= max_bytes && record_bytes >= 0 &&
           record_bytes <= max_bytes;
  }
  /// Whatever the worlds: what the file holds follows from its pieces alone, see LocalIdentity.
  bool same_file_as(const Head& other) const {
    return std::tie(run, layout, rank, buffers, buffer_bytes, record_bytes) ==
           std::tie(other.run, other.layout, other.rank, other.buffers, other.buffer_bytes,
                    other.record_bytes);
  }

  static constexpr std::int64_t record_head = 16;  ///< of a record, before its text: its length and XXH3-64
};
static_assert(sizeof(Head) == 80, "without gaps");

Head head_for(const LocalIdentity& identity, std::int64_t buffer_bytes, int buffers,
              std::int64_t max_record) {
  Head head{magic,          file_version, identity.run, identity.layout, identity.rank,
            identity.world, buffers,      buffer_bytes, max_record,      0};
  head.xxh3 = head.hash();
  return head;
}

/// A whole file in memory. Its pages are there from the beginning: a write never finds the folder full.
class Mapping {
 public:
  Mapping(int fd, std::int64_t bytes, bool writable, const fs::path& path) : bytes_(as_size(bytes)) {
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
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(base_, bytes_); }
  std::byte* at(std::int64_t offset) const { return base_ + offset; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_;
};

std::string why_no_room(const fs::path& path, std::int64_t bytes, int error) {
  struct statvfs room {};
  std::string text = fmt::format("{} bytes are needed", bytes);
  if (::statvfs(path.parent_path().c_str(), &room) == 0)
    text += fmt::format(", {} are free in {}", static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize,
                        path.parent_path().parent_path().string());
  return fmt::format("{}: {}", text, std::strerror(error));
}

/// The head of an existing file, when it is that of `bytes` of a local file.
std::optional<Head> read_head(int fd) {
  struct stat info {};
  Head head;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  if (::pread(fd, &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head) || !head.whole())
    return std::nullopt;
  if (info.st_size != head.file_bytes()) return std::nullopt;
  return head;
}

files::Fd open_existing(const fs::path& path, int flags) { return files::try_open(path, flags | O_NOFOLLOW); }

}  // namespace

struct LocalFile::Map {
  fs::path path;
  Head head;
  bool writable;
  Mapping memory;

  /// The length of a record's text; 0: the buffer is open. The first word of the record.
  std::atomic_ref<std::uint64_t> length(int buffer) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory.at(head.record_at(buffer))));
  }
  std::byte* record(int buffer) const { return memory.at(head.record_at(buffer)); }
  void check(int buffer) const {
    expects(buffer >= 0 && buffer < head.buffers, "a buffer of the local file");
  }
};

LocalFile::LocalFile(fs::path path, const LocalIdentity& identity, std::int64_t buffer_bytes, int buffers,
                     bool reset, std::int64_t max_record) {
  expects(buffers >= 1 && buffers <= max_buffers && buffer_bytes >= 0 && max_record >= 0,
          "sizes of a local file");
  const Head head = head_for(identity, buffer_bytes, buffers, max_record);
  files::make_private_folder(path.parent_path());
  files::Fd existing = open_existing(path, O_RDWR);
  if (const auto found = existing ? read_head(existing.get()) : std::nullopt;
      found && found->same_file_as(head)) {
    map_.reset(new Map{path, *found, true, {existing.get(), head.file_bytes(), true, path}});
    for (int buffer = 0; reset && buffer < buffers; ++buffer) open(buffer);
    return;
  }
  // Another file under the same name, never the same file in another shape: somebody may still have it
  // mapped.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw system_error("cannot remove " + path.string(), errno);
  const files::Fd fd = files::open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  try {
    if (const int error = files::reserve(fd.get(), head.file_bytes()); error != 0)
      throw Error(Exit::runtime, "no room for the local level " + path.string(),
                  why_no_room(path, head.file_bytes(), error),
                  "Give it another folder (checkpoint.local), or none; or shard over more ranks?");
    map_.reset(new Map{path, head, true, {fd.get(), head.file_bytes(), true, path}});
  } catch (const Error&) {
    ::unlink(path.c_str());
    throw;
  }
  std::memcpy(map_->memory.at(0), &head, sizeof head);  // all records are open: their lengths are zero
}

std::optional<LocalFile> LocalFile::find(const fs::path& path, const LocalIdentity& identity,
                                         std::int64_t buffer_bytes) {
  auto out = find(path);
  if (!out || out->identity() != identity || out->map_->head.buffer_bytes != buffer_bytes)
    return std::nullopt;
  return out;
}

std::optional<LocalFile> LocalFile::find(const fs::path& path) {
  const files::Fd fd = open_existing(path, O_RDONLY);
  if (!fd) return std::nullopt;
  const auto head = read_head(fd.get());
  if (!head) return std::nullopt;
  LocalFile out;
  out.map_.reset(new Map{path, *head, false, {fd.get(), head->file_bytes(), false, path}});
  return out;
}

LocalFile::LocalFile() = default;
LocalFile::LocalFile(LocalFile&&) noexcept = default;
LocalFile& LocalFile::operator=(LocalFile&&) noexcept = default;
LocalFile::~LocalFile() = default;

LocalIdentity LocalFile::identity() const {
  const Head& head = map_->head;
  return {head.run, head.layout, static_cast<int>(head.rank), static_cast<int>(head.world)};
}
int LocalFile::buffers() const { return static_cast<int>(map_->head.buffers); }
const fs::path& LocalFile::path() const { return map_->path; }

std::span<std::byte> LocalFile::buffer(int index) const {
  map_->check(index);
  return {map_->memory.at(map_->head.buffer_at(index)), as_size(map_->head.buffer_bytes)};
}

std::optional<Sealed> LocalFile::sealed(int index) const {
  map_->check(index);
  const std::uint64_t length = map_->length(index).load(std::memory_order_acquire);
  if (length == 0 || length > static_cast<std::uint64_t>(map_->head.record_bytes)) return std::nullopt;
  // Hashed as it was copied: another process may be writing.
  std::uint64_t hash = 0;
  std::string text(length, '\0');
  std::memcpy(&hash, map_->record(index) + sizeof length, sizeof hash);
  std::memcpy(text.data(), map_->record(index) + Head::record_head, text.size());
  if (XXH3_64bits(text.data(), text.size()) != hash) return std::nullopt;
  return sealed_from_text(text);
}

void LocalFile::open(int index) {
  map_->check(index);
  expects(map_->writable, "a local file that was found is only read");
  map_->length(index).store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // no byte of the data changes before it
}

void LocalFile::seal(int index, const Sealed& what) {
  open(index);
  const std::string text = to_text(what);
  if (static_cast<std::int64_t>(text.size()) > map_->head.record_bytes)
    throw Error(Exit::runtime, "a snapshot cannot be sealed in " + map_->path.string(),
                fmt::format("its record has {} bytes, and there is room for {}", text.size(),
                            map_->head.record_bytes));
  const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
  std::memcpy(map_->record(index) + sizeof(std::uint64_t), &hash, sizeof hash);
  std::memcpy(map_->record(index) + Head::record_head, text.data(), text.size());
  map_->length(index).store(text.size(), std::memory_order_release);
}

std::string to_text(const Sealed& what) {
  return json{{"step", what.point.step},       {"tokens", what.point.tokens},
              {"samples", what.point.samples}, {"detector", what.point.detector},
              {"scaling", what.point.scaling}, {"digests", what.digests}}
      .dump();
}

std::optional<Sealed> sealed_from_text(std::string_view text) {
  try {
    const json record = json_from(text);
    Sealed out;
    record.at("step").get_to(out.point.step);
    record.at("tokens").get_to(out.point.tokens);
    record.at("samples").get_to(out.point.samples);
    record.at("detector").get_to(out.point.detector);
    record.at("scaling").get_to(out.point.scaling);
    record.at("digests").get_to(out.digests);
    return out;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::optional<LocalOutline> outline_of(const fs::path& path) {
  const files::Fd fd = open_existing(path, O_RDONLY);
  const auto head = fd ? read_head(fd.get()) : std::nullopt;
  if (!head) return std::nullopt;
  LocalOutline out{{head->run, head->layout, static_cast<int>(head->rank), static_cast<int>(head->world)},
                   head->buffer_bytes,
                   {}};
  for (int buffer = 0; buffer < head->buffers; ++buffer) {
    auto& sealed = out.buffers.emplace_back();
    std::uint64_t length_and_hash[2] = {};
    if (::pread(fd.get(), length_and_hash, sizeof length_and_hash, head->record_at(buffer)) !=
            static_cast<ssize_t>(sizeof length_and_hash) ||
        length_and_hash[0] == 0 || length_and_hash[0] > static_cast<std::uint64_t>(head->record_bytes))
      continue;
    std::string text(length_and_hash[0], '\0');
    const ssize_t n =
        ::pread(fd.get(), text.data(), text.size(), head->record_at(buffer) + Head::record_head);
    if (n == static_cast<ssize_t>(text.size()) && XXH3_64bits(text.data(), text.size()) == length_and_hash[1])
      sealed = sealed_from_text(text);
  }
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
