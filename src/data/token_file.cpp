// Reading: open() checks the header and that the file has exactly the bytes that follow from it; the rest is
// read when it is asked for, by pread at a calculated offset. copy() compares every token with the
// vocabulary, each time. document_starts() searches the list of documents on the disk. verify() reads all of
// it, compares the hash, and checks tokens and documents.
//
// Writing: put() encodes a token into a buffer, and each MiB of that is hashed and written. What is learned
// is kept as bits in memory from the first token on that is not. finish() writes documents and bits behind
// the tokens, then the header at the front, syncs, and renames. The header comes last, so no unfinished file
// passes for a token file; the destructor removes one.
//
// A read that fails in the file system is a transient Error; a file that is wrong, or not there, is one of
// usage.
#include "src/data/token_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/lfs_pointer.hpp"

namespace holdfast::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fields and tokens are copied as they lie in memory");

constexpr std::size_t header_bytes = 4096, checked_bytes = 88, buffer_bytes = 1 << 20;
constexpr char magic[9] = "HFTOKENS";
constexpr std::uint32_t version = 2;
const char* const remake = "Make it again with `holdfast data prepare`";

Error unusable(const std::filesystem::path& path, std::string why) {
  return {Exit::usage, "cannot use token file " + path.string(), std::move(why), remake};
}

/// What asking again does not mend: the user named another file.
bool is_for_good(int error) {
  return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == ENAMETOOLONG ||
         error == ELOOP;
}

Error out_of_reach(const std::filesystem::path& path, int error) {
  return {Exit::transient, "token file " + path.string() + " cannot be read now", std::strerror(error),
          "Start the run again when it can be read?"};
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
  write_at(bytes.data(), 48, header.content);
  write_at(bytes.data(), 64, header.documents);
  write_at(bytes.data(), 72, header.row);
  write_at(bytes.data(), 80, std::uint32_t{header.masked});
  write_at(bytes.data(), checked_bytes, std::uint64_t{XXH3_64bits(bytes.data(), checked_bytes)});
  return bytes;
}

/// Checks everything but the size of the file.
TokenHeader decode(const std::uint8_t* bytes, const std::filesystem::path& path) {
  if (std::memcmp(bytes, magic, 8) != 0)
    throw unusable(path, "it does not begin with \"HFTOKENS\": not a token file");
  if (const auto found = read_at<std::uint32_t>(bytes, 8); found != version) {
    throw unusable(path, "its format version is " + std::to_string(found) + ", this program reads version 2");
  }
  if (read_at<std::uint64_t>(bytes, checked_bytes) != XXH3_64bits(bytes, checked_bytes)) {
    throw unusable(path, "its header is damaged: the checksum differs");
  }
  TokenHeader header;
  header.bytes_per_token = read_at<std::uint32_t>(bytes, 12);
  header.vocabulary = read_at<std::uint64_t>(bytes, 16);
  header.count = read_at<std::uint64_t>(bytes, 24);
  header.tokenizer = read_at<Hash128>(bytes, 32);
  header.content = read_at<Hash128>(bytes, 48);
  header.documents = read_at<std::uint64_t>(bytes, 64);
  header.row = read_at<std::uint64_t>(bytes, 72);
  header.masked = read_at<std::uint32_t>(bytes, 80) != 0;
  const bool sound =
      ((header.bytes_per_token == 2 && header.vocabulary <= 65536) || header.bytes_per_token == 4) &&
      header.vocabulary > 0 && header.vocabulary <= std::numeric_limits<std::int32_t>::max() &&
      header.count <= std::numeric_limits<std::int64_t>::max() / 32 && header.documents <= header.count &&
      (header.row == 0 || header.count % header.row == 0);
  if (!sound) throw unusable(path, "its header contradicts itself");
  return header;
}

std::size_t round_up_to_8(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

/// Where the parts of a file lie.
struct Parts {
  std::size_t documents, learned, end;
};
Parts parts_of(const TokenHeader& header) {
  const std::size_t tokens_end = header_bytes + header.count * header.bytes_per_token;
  const bool more = header.documents > 0 || header.masked;
  Parts out{};
  out.documents = more ? round_up_to_8(tokens_end) : tokens_end;
  out.learned = out.documents + header.documents * sizeof(std::uint64_t);
  out.end = out.learned + (header.masked ? (header.count + 7) / 8 : 0);
  return out;
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
  files::Fd fd = files::try_open(path, O_RDONLY);
  struct stat status = {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    const int why = errno;
    if (why == ENXIO || why == EISDIR) throw unusable(path, "it is not a regular file");
    if (!is_for_good(why)) throw out_of_reach(path, why);
    throw unusable(path, std::strerror(why));
  }
  TokenFile file(path, std::move(fd));
  file.bytes_ = as_size(status.st_size);
  if (file.bytes_ == 0) throw unusable(path, "it is empty");
  std::string begin(std::min(file.bytes_, std::size_t{64}), '\0');
  file.read(0, begin.data(), begin.size());
  refuse_lfs_pointer(path, begin);
  if (file.bytes_ < header_bytes)
    throw unusable(path, "it has " + std::to_string(file.bytes_) + " bytes, less than its header's 4096");
  std::array<std::uint8_t, header_bytes> header;
  file.read(0, header.data(), header.size());
  file.header_ = decode(header.data(), path);
  const Parts parts = parts_of(file.header_);
  file.documents_at_ = parts.documents;
  file.learned_at_ = parts.learned;
  if (file.bytes_ != parts.end) {
    throw unusable(path, std::string(file.bytes_ < parts.end ? "it is truncated: " : "it is too long: ") +
                             std::to_string(file.bytes_) + " bytes, its header promises " +
                             std::to_string(parts.end));
  }
  if (file.size() < least) {
    throw Error(Exit::usage, "token file " + path.string() + " is too short",
                std::to_string(file.size()) + " tokens, " + std::to_string(least) + " are needed",
                "Prepare more text, or lower train.sequence?");
  }
  return file;
}

void TokenFile::read(std::size_t offset, void* out, std::size_t bytes) const {
  for (std::size_t done = 0; done < bytes;) {
    const ::ssize_t got = ::pread(fd_.get(), static_cast<std::uint8_t*>(out) + done, bytes - done,
                                  static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw out_of_reach(path_, errno);
    if (got == 0) throw unusable(path_, "it was cut while it was open");
    done += as_size(got);
  }
}

void TokenFile::expect_tokens(std::int64_t first, std::int64_t count) const {
  expects(first >= 0 && count <= size() && first <= size() - count, "token range lies within the file");
}

void TokenFile::copy(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  expect_tokens(first, count);
  const std::size_t width = header_.bytes_per_token, offset = header_bytes + width * as_size(first);
  // Narrow tokens come into the second half of `out` and are widened from its beginning on.
  std::uint8_t* const bytes = reinterpret_cast<std::uint8_t*>(out.data()) + (4 - width) * out.size();
  read(offset, bytes, width * out.size());
  if (width == 2)
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = read_at<std::uint16_t>(bytes, 2 * i);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t token = out[i];
    if (token < 0 || token >= vocabulary()) {
      throw unusable(path_, "token " + std::to_string(first + i) + " is " + std::to_string(token) +
                                ", outside the vocabulary of " + std::to_string(vocabulary()) +
                                ": the file is damaged");
    }
  }
}

std::int64_t TokenFile::document(std::int64_t number) const { return document_begins(number, 1).front(); }

std::vector<std::int64_t> TokenFile::document_begins(std::int64_t first, std::int64_t count) const {
  expects(first >= 0 && count >= 0 && first <= documents() - count, "the file has these documents");
  std::vector<std::int64_t> begins(as_size(count));
  read(documents_at_ + sizeof(std::uint64_t) * as_size(first), begins.data(),
       sizeof(std::uint64_t) * begins.size());
  return begins;
}

std::vector<bool> TokenFile::learned(std::int64_t first, std::int64_t count) const {
  expect_tokens(first, count);
  std::vector<bool> out(as_size(count), true);
  if (!header_.masked || count == 0) return out;
  const std::size_t begin = as_size(first) / 8, end = as_size(first + count - 1) / 8 + 1;
  std::vector<std::uint8_t> bits(end - begin);
  read(learned_at_ + begin, bits.data(), bits.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t at = as_size(first) - 8 * begin + i;
    out[i] = (bits[at / 8] >> (at % 8) & 1) != 0;
  }
  return out;
}

void TokenFile::document_starts(std::int64_t first, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  expect_tokens(first, count);
  std::int64_t low = 0, high = documents();  // the first document that begins behind `first`
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    document(middle) <= first ? low = middle + 1 : high = middle;
  }
  // No two documents begin at one token, so no more than these begin here.
  const std::vector<std::int64_t> begins = document_begins(low, std::min(count, documents() - low));
  std::int64_t start = 0;
  std::size_t next = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (next < begins.size() && begins[next] <= first + i) {
      if (begins[next] != first + i)
        throw unusable(path_, "its list of documents is damaged at number " +
                                  std::to_string(low + static_cast<std::int64_t>(next)));
      start = i;
      ++next;
    }
    out[i] = static_cast<std::int32_t>(start);
  }
}

void TokenFile::verify() const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset_withSeed(state.get(), header_.row);
  std::vector<std::uint8_t> part(std::min(bytes_ - header_bytes, buffer_bytes));
  for (std::size_t at = header_bytes; at < bytes_; at += part.size()) {
    part.resize(std::min(bytes_ - at, part.size()));
    read(at, part.data(), part.size());
    XXH3_128bits_update(state.get(), part.data(), part.size());
  }
  const Hash128 found = canonical(XXH3_128bits_digest(state.get()));
  if (found != header_.content)
    throw unusable(path_, "its content is damaged: its hash is " + hex(found) + ", not " + identity());
  constexpr std::int64_t each = 1 << 16;
  std::vector<std::int32_t> tokens(as_size(std::min(size(), each)));
  for (std::int64_t at = 0; at < size(); at += each)
    copy(at, std::span(tokens).first(as_size(std::min(size() - at, each))));
  std::int64_t least = 0;
  for (std::int64_t at = 0; at < documents(); at += each) {
    const auto begins = document_begins(at, std::min(documents() - at, each));
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const bool first = at == 0 && i == 0;
      if (begins[i] >= size() || begins[i] < least || (first && begins[i] != 0))
        throw unusable(path_, "its list of documents is damaged at number " +
                                  std::to_string(at + static_cast<std::int64_t>(i)));
      least = begins[i] + 1;
    }
  }
}

TokenFileWriter::TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary,
                                 const Hash128& tokenizer, std::int64_t row)
    : path_(std::move(path)), aside_(files::name_aside(path_)), state_(XXH3_createState()) {
  expects(vocabulary > 0 && vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "vocabulary is in [1, 2^31)");
  expects(row >= 0, "a row has a length, or there are none");
  header_.bytes_per_token = vocabulary <= 65536 ? 2 : 4;
  header_.vocabulary = static_cast<std::uint64_t>(vocabulary);
  header_.tokenizer = tokenizer;
  header_.row = static_cast<std::uint64_t>(row);
  XXH3_128bits_reset_withSeed(state_.get(), header_.row);
  fd_ = files::try_open(aside_, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (!fd_)
    throw Error(Exit::usage, "cannot write token file " + path_.string(), std::strerror(errno),
                "Choose another --output?");
  written_ =
      header_bytes;  // a hole until finish() fills it: an unfinished file never passes for a token file
}

TokenFileWriter::~TokenFileWriter() {
  if (fd_) ::unlink(aside_.c_str());
}

void TokenFileWriter::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void TokenFileWriter::begin_document() {
  expects(header_.count == 0 || !documents_.empty(), "either every token has a document or none");
  new_document_ = true;
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens, bool learned) {
  for (const std::int32_t token : tokens) put(token, learned);
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens, const std::vector<bool>& learned) {
  expects(tokens.size() == learned.size(), "a word for each token");
  for (std::size_t i = 0; i < tokens.size(); ++i) put(tokens[i], learned[i]);
}

void TokenFileWriter::put(std::int32_t token, bool learned) {
  expects(token >= 0 && static_cast<std::uint64_t>(token) < header_.vocabulary,
          "token is inside the vocabulary");
  if (new_document_) {
    documents_.push_back(header_.count);
    new_document_ = false;
  }
  if (!learned && !header_.masked) {
    header_.masked = true;
    learned_.assign(header_.count / 8, 0xff);
    if (header_.count % 8 > 0) learned_.push_back(static_cast<std::uint8_t>((1u << header_.count % 8) - 1));
  }
  if (header_.masked) {
    if (header_.count % 8 == 0) learned_.push_back(0);
    if (learned) learned_.back() = static_cast<std::uint8_t>(learned_.back() | 1u << header_.count % 8);
  }
  for (std::uint32_t byte = 0; byte < header_.bytes_per_token; ++byte)
    buffer_.push_back(static_cast<std::uint8_t>(static_cast<std::uint32_t>(token) >> (8 * byte)));
  ++header_.count;
  if (buffer_.size() >= buffer_bytes) flush();
}

void TokenFileWriter::put_bytes(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  buffer_.insert(buffer_.end(), from, from + bytes);
  flush();
}

void TokenFileWriter::flush() {
  XXH3_128bits_update(state_.get(), buffer_.data(), buffer_.size());
  files::write_all(fd_.get(), buffer_.data(), buffer_.size(), written_, aside_);
  written_ += buffer_.size();
  buffer_.clear();
}

TokenHeader TokenFileWriter::finish() {
  expects(static_cast<bool>(fd_), "finish() is called once");
  expects(header_.row == 0 || header_.count % header_.row == 0, "whole rows");
  header_.documents = documents_.size();
  constexpr std::uint64_t zeros = 0;
  const std::size_t tokens_end = header_bytes + header_.count * header_.bytes_per_token;
  put_bytes(&zeros, parts_of(header_).documents - tokens_end);
  put_bytes(documents_.data(), documents_.size() * sizeof(std::uint64_t));
  put_bytes(learned_.data(), learned_.size());
  header_.content = canonical(XXH3_128bits_digest(state_.get()));
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
