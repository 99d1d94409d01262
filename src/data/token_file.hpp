#pragma once
// Token files: what `holdfast data prepare` writes and the trainer maps. One header, then nothing but tokens.
//
// All numbers are little endian. Bytes of the file:
//
//     offset  size  field
//          0     8  magic "HFTOKENS"
//          8     4  version, 1
//         12     4  bytes per token: 2 (vocabulary up to 65536) or 4
//         16     8  vocabulary V: every token is in [0, V)
//         24     8  count: number of tokens
//         32    16  XXH3-128 of the tokenizer model's bytes (canonical order); zero when unknown
//         48    16  XXH3-128 of the token bytes as stored (canonical order): the identity of the data
//         64     8  XXH3-64 of bytes [0, 64)
//         72        zero up to 4096
//       4096        count * bytes per token; the file ends there
//
// The size of the file is exactly 4096 + count * bytes per token, so a cut copy is noticed without reading
// it.
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/files.hpp"

struct XXH3_state_s;

namespace holdfast::data {

using Hash128 = std::array<std::uint8_t, 16>;

/// 32 hex digits.
std::string hex(const Hash128& hash);
/// XXH3-128 of a whole text, for example of a tokenizer model.
Hash128 hash_bytes(std::string_view bytes);

/// The fields of the header, decoded.
struct TokenHeader {
  std::uint32_t bytes_per_token = 2;
  std::uint64_t vocabulary = 0, count = 0;
  Hash128 tokenizer = {};  ///< all zero: unknown
  Hash128 tokens = {};
};

/// A token file mapped read-only: opening costs the same for any size, and all ranks of a node share its
/// pages. The file must stay as it is while it is mapped (the writer replaces files by rename, which is
/// safe).
class TokenFile {
 public:
  /// Checks magic, version, header checksum and the exact size. Error (usage) when the file is missing,
  /// empty, cut, not a token file, or holds fewer than `least` tokens; it says how to make the file again.
  static TokenFile open(const std::filesystem::path& path, std::int64_t least = 1);

  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;
  ~TokenFile();

  const TokenHeader& header() const { return header_; }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(header_.vocabulary); }
  std::int64_t size() const { return static_cast<std::int64_t>(header_.count); }  ///< tokens
  /// 0 <= index < size(), not checked.
  std::int32_t operator[](std::int64_t index) const;
  /// Tokens [first, first + out.size()) into `out`. Error (usage) when one of them is outside the vocabulary,
  /// so that a damaged file cannot reach the embedding table; std::logic_error when the range is outside the
  /// file.
  void copy(std::int64_t first, std::span<std::int32_t> out) const;
  /// Hash of the tokens as 32 hex digits, from the header: two files with one identity train the same model.
  std::string identity() const { return hex(header_.tokens); }
  /// Reads everything; Error (usage) when the tokens are not the ones that were written, or one is outside
  /// the vocabulary.
  void verify() const;

 private:
  TokenFile(std::filesystem::path path, const TokenHeader& header, const std::uint8_t* map,
            std::size_t bytes);

  std::filesystem::path path_;
  TokenHeader header_;
  const std::uint8_t* map_ = nullptr;  ///< whole file
  std::size_t bytes_ = 0;              ///< of the whole file
};

/// Writes a token file beside its place and moves it there at the end; without finish() nothing remains.
///
///     TokenFileWriter writer("tokens.bin", 512, hash_bytes(model));
///     writer.append(tokens);
///     writer.finish();
class TokenFileWriter {
 public:
  /// `vocabulary` in [1, 2^31). Error when the file cannot be created.
  TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary, const Hash128& tokenizer = {});
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  /// std::logic_error when a token is outside the vocabulary.
  void append(std::span<const std::int32_t> tokens);
  std::int64_t size() const { return static_cast<std::int64_t>(header_.count); }
  /// Header, fsync, rename. Returns the header as written.
  TokenHeader finish();

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  void flush();

  std::filesystem::path path_, aside_;
  files::Fd fd_;
  TokenHeader header_;
  std::vector<std::uint8_t> buffer_;  ///< encoded tokens not yet written
  std::uint64_t written_ = 0;         ///< bytes on disk, header included
  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

}  // namespace holdfast::data
