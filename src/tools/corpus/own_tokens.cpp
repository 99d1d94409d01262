#include "src/tools/corpus/own_tokens.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t index_header = 34;

constexpr std::int32_t llm_c_16 = 20240520, llm_c_32 = 20240801;  ///< what its shards begin with

/// First bytes of files that are not raw tokens.
constexpr std::pair<std::string_view, const char*> foreign_files[] = {
    {"\x93NUMPY", "an array of NumPy with a header: write it with tofile()"},
    {"HFTOKENS", "a token file of Holdfast already"},
    {"MMIDIDX", "an index of Megatron's: use --format megatron"},
    {"PK\x03\x04", "an archive (.zip, .npz, .pt)"},
    {"\x1f\x8b\x08", "compressed by gzip: decompress it"},
    {"\x28\xb5\x2f\xfd", "compressed by zstd: decompress it"},
    {"PAR1", "a Parquet file"}};

Error unusable(const fs::path& path, std::string why, std::string hint = {}) {
  return {Exit::usage, "cannot use tokens " + path.string(), std::move(why), std::move(hint)};
}

template <class T>
T read_at(std::span<const std::uint8_t> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

Mapped::Mapped(const fs::path& path) {
  if (path.empty()) return;
  const files::Fd fd = files::open(path, O_RDONLY);
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) throw system_error("cannot read " + path.string(), errno);
  size_ = as_size(status.st_size);
  if (size_ == 0) return;
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (map == MAP_FAILED) throw system_error("cannot map " + path.string(), errno);
  map_ = static_cast<const std::uint8_t*>(map);
}

Mapped::~Mapped() {
  if (map_) ::munmap(const_cast<std::uint8_t*>(map_), size_);
}

OwnTokens::OwnTokens(const Input& input, std::optional<std::int32_t> document_start)
    : path_(input.path),
      index_(input.format == Format::megatron ? input.path : fs::path()),
      data_(input.format == Format::megatron ? fs::path(input.path).replace_extension(".bin") : input.path),
      document_start_(document_start),
      indexed_(input.format == Format::megatron),
      width_(input.format == Format::u16 ? 2 : 4) {
  if (indexed_) {
    read_index();
    return;
  }
  following_ = header_of_shard();
  if (data_.bytes().size() % width_ != 0)
    throw unusable(path_, std::to_string(data_.bytes().size()) + " bytes are not a multiple of the " +
                              std::to_string(width_) + " of a token");
}

/// Bytes before the tokens: those of the header of an llm.c shard, else none. Files that say of themselves
/// what they are, and are no raw tokens, are refused.
std::uint64_t OwnTokens::header_of_shard() const {
  const auto bytes = data_.bytes();
  const std::string_view begin(reinterpret_cast<const char*>(bytes.data()),
                               std::min<std::size_t>(bytes.size(), 8));
  for (const auto& [magic, what] : foreign_files)
    if (begin.starts_with(magic)) throw unusable(path_, std::string("it is ") + what);
  constexpr std::uint64_t header_bytes = 256 * 4;
  const auto number = [&](std::size_t i) { return read_at<std::int32_t>(bytes, 4 * i); };
  if (bytes.size() < header_bytes) return 0;
  const std::int32_t magic = number(0);
  if (magic != llm_c_16 && magic != llm_c_32) return 0;
  const std::uint64_t width = magic == llm_c_16 ? 2 : 4, tokens = static_cast<std::uint32_t>(number(2));
  if (width != width_)
    throw unusable(path_, "it is a shard of llm.c with tokens of " + std::to_string(width) + " bytes",
                   width == 2 ? "Use --format u16?" : "Use --format u32?");
  if (bytes.size() != header_bytes + tokens * width)
    throw unusable(path_, "it is a shard of llm.c, whose header promises " + std::to_string(tokens) +
                              " tokens, and it has " + std::to_string((bytes.size() - header_bytes) / width));
  return header_bytes;
}

void OwnTokens::read_index() {
  const auto bytes = index_.bytes();
  if (bytes.size() < index_header || std::memcmp(bytes.data(), "MMIDIDX\0\0", 9) != 0)
    throw unusable(path_, "it does not begin with \"MMIDIDX\": no index of Megatron's");
  if (const auto version = read_at<std::uint64_t>(bytes, 9); version != 1)
    throw unusable(path_, "its version is " + std::to_string(version) + ", 1 is known");
  const int type = bytes[17];
  if (type != 8 && type != 4)
    throw unusable(path_,
                   "its tokens are of type " + std::to_string(type) + ", known are 8 (uint16) and 4 (int32)");
  width_ = type == 8 ? 2 : 4;
  sequences_ = read_at<std::uint64_t>(bytes, 18);
  const auto entries = read_at<std::uint64_t>(bytes, 26);
  const std::uint64_t room = bytes.size() - index_header;
  if (sequences_ > room / 12 || entries > (room - 12 * sequences_) / 8)
    throw unusable(path_, "it is cut off: its header promises more");
  if (entries == 0) throw unusable(path_, "its list of documents is empty");
  documents_ = entries - 1;
}

TokenSpan OwnTokens::document_of_index(std::uint64_t number) const {
  const auto bytes = index_.bytes();
  const std::uint64_t lengths = index_header, places = lengths + 4 * sequences_,
                      list = places + 8 * sequences_;
  const auto fail = [&](const char* why) {
    throw unusable(path_, "document " + std::to_string(number) + " " + why);
  };
  const auto first = read_at<std::uint64_t>(bytes, list + 8 * number);
  const auto last = read_at<std::uint64_t>(bytes, list + 8 * (number + 1));
  if (first > last || last > sequences_) fail("has sequences that are not there");
  if (first == last) return {};
  TokenSpan span;
  span.begin = span.end = read_at<std::uint64_t>(bytes, places + 8 * first);
  for (std::uint64_t i = first; i < last; ++i) {
    const auto length = read_at<std::int32_t>(bytes, lengths + 4 * i);
    if (length < 0) fail("has a sequence of negative length");
    if (read_at<std::uint64_t>(bytes, places + 8 * i) != span.end) fail("is not in one piece");
    span.end += static_cast<std::uint64_t>(length) * width_;
    if (span.end > data_.bytes().size() || span.end < span.begin) fail("reaches beyond the .bin file");
  }
  return span;
}

std::uint32_t OwnTokens::token_at(std::uint64_t byte) const {
  return width_ == 2 ? read_at<std::uint16_t>(data_.bytes(), byte)
                     : read_at<std::uint32_t>(data_.bytes(), byte);
}

bool OwnTokens::next(TokenSpan& document) {
  while (indexed_ && following_ < documents_) {
    document = document_of_index(following_++);
    if (document.begin < document.end) return true;
    ++empty_;
  }
  if (indexed_ || following_ >= data_.bytes().size()) return false;
  document.begin = following_;
  document.end = data_.bytes().size();
  if (document_start_) {
    const auto start = static_cast<std::uint32_t>(*document_start_);
    for (std::uint64_t at = document.begin + width_; at < document.end; at += width_)
      if (token_at(at) == start) document.end = at;
  }
  following_ = document.end;
  return true;
}

void OwnTokens::decode(const TokenSpan& span, std::int64_t vocabulary, std::vector<std::int32_t>& out) const {
  out.clear();
  for (std::uint64_t at = span.begin; at < span.end; at += width_) {
    const std::uint32_t token = token_at(at);
    if (token >= vocabulary)
      throw unusable(path_, "the token at byte " + std::to_string(at) + " is " + std::to_string(token) +
                                ", outside the vocabulary of " + std::to_string(vocabulary));
    out.push_back(static_cast<std::int32_t>(token));
  }
}

}  // namespace holdfast::corpus
