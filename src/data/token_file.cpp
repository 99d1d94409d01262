#include "src/data/token_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "src/base/error.hpp"

namespace holdfast::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fields and tokens are copied as they lie in memory");

constexpr std::size_t header_bytes = 4096, checked_bytes = 64, buffer_bytes = 1 << 20;
constexpr char magic[9] = "HFTOKENS";
constexpr std::uint32_t version = 1;
const char* const remake = "Make it again with `holdfast data prepare`";

Error unusable(const std::filesystem::path& path, std::string why) {
  return {Exit::usage, "cannot use token file " + path.string(), std::move(why), remake};
}

Hash128 canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Hash128 out;
  std::memcpy(out.data(), bytes.digest, out.size());
  return out;
}

template <class T>
T read_at(const std::uint8_t* bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

template <class T>
void write_at(std::uint8_t* bytes, std::size_t offset, const T& value) {
  std::memcpy(bytes + offset, &value, sizeof value);
}

std::array<std::uint8_t, header_bytes> encode(const TokenHeader& header) {
  std::array<std::uint8_t, header_bytes> bytes = {};
  std::memcpy(bytes.data(), magic, 8);
  write_at(bytes.data(), 8, version);
  write_at(bytes.data(), 12, header.bytes_per_token);
  write_at(bytes.data(), 16, header.vocabulary);
  write_at(bytes.data(), 24, header.count);
  write_at(bytes.data(), 32, header.tokenizer);
  write_at(bytes.data(), 48, header.tokens);
  write_at(bytes.data(), checked_bytes, std::uint64_t{XXH3_64bits(bytes.data(), checked_bytes)});
  return bytes;
}

/// Checks everything but the size of the file.
TokenHeader decode(const std::uint8_t* bytes, const std::filesystem::path& path) {
  if (std::memcmp(bytes, magic, 8) != 0)
    throw unusable(path, "it does not begin with \"HFTOKENS\": not a token file");
  if (const auto found = read_at<std::uint32_t>(bytes, 8); found != version) {
    throw unusable(path, "its format version is " + std::to_string(found) + ", this program reads version 1");
  }
  if (read_at<std::uint64_t>(bytes, checked_bytes) != XXH3_64bits(bytes, checked_bytes)) {
    throw unusable(path, "its header is damaged: the checksum differs");
  }
  TokenHeader header;
  header.bytes_per_token = read_at<std::uint32_t>(bytes, 12);
  header.vocabulary = read_at<std::uint64_t>(bytes, 16);
  header.count = read_at<std::uint64_t>(bytes, 24);
  header.tokenizer = read_at<Hash128>(bytes, 32);
  header.tokens = read_at<Hash128>(bytes, 48);
  const bool sound =
      (header.bytes_per_token == 2 && header.vocabulary <= 65536) || header.bytes_per_token == 4;
  if (!sound || header.vocabulary == 0 || header.vocabulary > std::numeric_limits<std::int32_t>::max() ||
      header.count > std::numeric_limits<std::int64_t>::max() / 8) {
    throw unusable(path, "its header contradicts itself");
  }
  return header;
}

}  // namespace

std::string hex(const Hash128& hash) {
  std::string text;
  for (const std::uint8_t byte : hash) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

Hash128 hash_bytes(std::string_view bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

TokenFile TokenFile::open(const std::filesystem::path& path, std::int64_t least) {
  const int raw = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (raw < 0) throw unusable(path, std::strerror(errno));
  const files::Fd fd(raw);
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) throw unusable(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw unusable(path, "it is not a regular file");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes == 0) throw unusable(path, "it is empty");
  if (bytes < header_bytes)
    throw unusable(path, "it has " + std::to_string(bytes) + " bytes, less than its header's 4096");

  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) throw system_error("cannot map token file " + path.string(), errno);
  TokenFile file(path, TokenHeader{}, static_cast<const std::uint8_t*>(map),
                 bytes);  // unmaps when a check throws
  file.header_ = decode(file.map_, path);
  const std::uint64_t promised = header_bytes + file.header_.count * file.header_.bytes_per_token;
  if (bytes != promised) {
    throw unusable(path, std::string(bytes < promised ? "it is truncated: " : "it is too long: ") +
                             std::to_string(bytes) + " bytes, its header promises " +
                             std::to_string(promised));
  }
  if (file.size() < least) {
    throw Error(Exit::usage, "token file " + path.string() + " is too short",
                std::to_string(file.size()) + " tokens, " + std::to_string(least) + " are needed",
                "Prepare more text, or lower train.sequence?");
  }
  return file;
}

TokenFile::TokenFile(std::filesystem::path path, const TokenHeader& header, const std::uint8_t* map,
                     std::size_t bytes)
    : path_(std::move(path)), header_(header), map_(map), bytes_(bytes) {}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)),
      header_(other.header_),
      map_(std::exchange(other.map_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(header_, other.header_);
  std::swap(map_, other.map_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

TokenFile::~TokenFile() {
  if (map_) ::munmap(const_cast<std::uint8_t*>(map_), bytes_);
}

std::int32_t TokenFile::operator[](std::int64_t index) const {
  const std::uint8_t* tokens = map_ + header_bytes;
  const auto i = static_cast<std::size_t>(index);
  return header_.bytes_per_token == 2 ? std::int32_t{read_at<std::uint16_t>(tokens, 2 * i)}
                                      : read_at<std::int32_t>(tokens, 4 * i);
}

void TokenFile::copy(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  expects(first >= 0 && count <= size() && first <= size() - count, "token range lies within the file");
  for (std::int64_t i = 0; i < count; ++i) out[static_cast<std::size_t>(i)] = (*this)[first + i];
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t token = out[static_cast<std::size_t>(i)];
    if (token < 0 || token >= vocabulary()) {
      throw unusable(path_, "token " + std::to_string(first + i) + " is " + std::to_string(token) +
                                ", outside the vocabulary of " + std::to_string(vocabulary()) +
                                ": the file is damaged");
    }
  }
}

void TokenFile::verify() const {
  const Hash128 found = canonical(XXH3_128bits(map_ + header_bytes, bytes_ - header_bytes));
  if (found != header_.tokens)
    throw unusable(path_, "its tokens are damaged: their hash is " + hex(found) + ", not " + identity());
  std::vector<std::int32_t> piece(static_cast<std::size_t>(std::min<std::int64_t>(size(), 1 << 16)));
  for (std::int64_t at = 0; at < size(); at += static_cast<std::int64_t>(piece.size())) {
    copy(at, std::span(piece).first(static_cast<std::size_t>(std::min<std::int64_t>(size() - at, 1 << 16))));
  }
}

TokenFileWriter::TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary,
                                 const Hash128& tokenizer)
    : path_(std::move(path)), aside_(path_), state_(XXH3_createState()) {
  expects(vocabulary > 0 && vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "vocabulary is in [1, 2^31)");
  header_.bytes_per_token = vocabulary <= 65536 ? 2 : 4;
  header_.vocabulary = static_cast<std::uint64_t>(vocabulary);
  header_.tokenizer = tokenizer;
  XXH3_128bits_reset(state_.get());
  aside_ += ".tmp-" + std::to_string(::getpid());
  const int raw = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (raw < 0)
    throw Error(Exit::usage, "cannot write token file " + path_.string(), std::strerror(errno),
                "Choose another --output?");
  fd_ = files::Fd(raw);
  written_ =
      header_bytes;  // a hole until finish() fills it: an unfinished file never passes for a token file
}

TokenFileWriter::~TokenFileWriter() {
  if (fd_) ::unlink(aside_.c_str());
}

void TokenFileWriter::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void TokenFileWriter::append(std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) {
    expects(token >= 0 && static_cast<std::uint64_t>(token) < header_.vocabulary,
            "token is inside the vocabulary");
    for (std::uint32_t byte = 0; byte < header_.bytes_per_token; ++byte) {
      buffer_.push_back(static_cast<std::uint8_t>(static_cast<std::uint32_t>(token) >> (8 * byte)));
    }
    ++header_.count;
    if (buffer_.size() >= buffer_bytes) flush();
  }
}

void TokenFileWriter::flush() {
  XXH3_128bits_update(state_.get(), buffer_.data(), buffer_.size());
  files::write_all(fd_.get(), buffer_.data(), buffer_.size(), written_, aside_);
  written_ += buffer_.size();
  buffer_.clear();
}

TokenHeader TokenFileWriter::finish() {
  expects(static_cast<bool>(fd_), "finish() is called once");
  flush();
  header_.tokens = canonical(XXH3_128bits_digest(state_.get()));
  const auto header = encode(header_);
  files::write_all(fd_.get(), header.data(), header.size(), 0, aside_);
  files::sync(fd_.get(), aside_);
  if (::rename(aside_.c_str(), path_.c_str()) != 0)
    throw system_error("cannot rename " + aside_.string(), errno);
  fd_.reset();
  files::sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
  return header_;
}

}  // namespace holdfast::data
