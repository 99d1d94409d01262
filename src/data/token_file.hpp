#pragma once
// Token files: what `holdfast data prepare` writes and the trainer reads.
//
// All numbers are little endian. Bytes of the file:
//
//     offset  size  field
//          0     8  magic "HFTOKENS"
//          8     4  version, 2
//         12     4  bytes per token: 2 (vocabulary up to 65536) or 4
//         16     8  vocabulary V: every token is in [0, V)
//         24     8  count: number of tokens
//         32    16  XXH3-128 of the tokenizer model's bytes (canonical order); zero when unknown
//         48    16  XXH3-128 of all bytes behind the header (canonical order), seeded with the row: the
//                   identity of the data
//         64     8  documents: how many; 0 when the tokens are one text
//         72     8  row: 0, or the length of the rows that the tokens were packed into. A sample is then a
//                   row, and no label crosses into the next one
//         80     4  1 when some tokens are not learned, else 0
//         84     4  zero
//         88     8  XXH3-64 of bytes [0, 88)
//         96        zero up to 4096
//       4096        count * bytes per token, zeros up to a multiple of 8
//                   documents * 8: the place of each document's first token; the first is 0, and they grow
//                   where some are not learned, ceil(count / 8): bit i % 8 of byte i / 8 says that token i is
//                   learned when it is the label of the token before it
//
// The file ends there: a cut copy is noticed without reading it.
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
  Hash128 content = {};    ///< of tokens, documents and what is learned
  std::uint64_t documents = 0, row = 0;
  bool masked = false;  ///< some tokens are not learned
};

/// A token file, open for reading: opening costs the same for any size, and reading takes no memory but the
/// caller's. It is not mapped: a page that cannot be read ends a process by SIGBUS, a call says why. The file
/// must stay as it is while it is open (the writer replaces files by rename, which is safe).
///
/// All that reads throws Error (transient) where the file system fails: it may answer later.
class TokenFile {
 public:
  /// Checks magic, version, header checksum and the exact size. Error (usage) when the file is missing,
  /// empty, cut, not a token file, or holds fewer than `least` tokens; it says how to make the file again.
  static TokenFile open(const std::filesystem::path& path, std::int64_t least = 1);

  const TokenHeader& header() const { return header_; }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(header_.vocabulary); }
  std::int64_t size() const { return static_cast<std::int64_t>(header_.count); }  ///< tokens
  /// Tokens [first, first + out.size()) into `out`. Error (usage) when one of them is outside the vocabulary,
  /// so that a damaged file cannot reach the embedding table; std::logic_error when the range is outside the
  /// file.
  void copy(std::int64_t first, std::span<std::int32_t> out) const;
  std::int64_t documents() const { return static_cast<std::int64_t>(header_.documents); }
  std::int64_t row() const { return static_cast<std::int64_t>(header_.row); }
  /// Where document `number` begins. Not checked.
  std::int64_t document(std::int64_t number) const;
  /// Where documents [first, first + count) begin. std::logic_error when there are fewer.
  std::vector<std::int64_t> document_begins(std::int64_t first, std::int64_t count) const;
  /// For each token of [first, first + out.size()), how many places behind `first` its document begins; 0
  /// where it began before. Error (usage) when the file is damaged there.
  void document_starts(std::int64_t first, std::span<std::int32_t> out) const;
  /// Which tokens of [first, first + count) count as labels. std::logic_error when the range is outside the
  /// file.
  std::vector<bool> learned(std::int64_t first, std::int64_t count) const;
  /// Hash as 32 hex digits, from the header: two files with one identity train the same model.
  std::string identity() const { return hex(header_.content); }
  /// Reads everything; Error (usage) when it is not what was written, or a token is outside the vocabulary.
  void verify() const;

 private:
  TokenFile(std::filesystem::path path, files::Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void read(std::size_t offset, void* out, std::size_t bytes) const;
  void expect_tokens(std::int64_t first, std::int64_t count) const;

  std::filesystem::path path_;
  files::Fd fd_;
  TokenHeader header_;
  std::size_t bytes_ = 0;  ///< of the whole file
  std::size_t documents_at_ = 0, learned_at_ = 0;
};

/// Writes a token file beside its place and moves it there at the end; without finish() nothing remains.
///
///     TokenFileWriter writer("tokens.bin", 512, hash_bytes(model));
///     for (each document) writer.begin_document(), writer.append(tokens);
///     writer.finish();
///
/// It remembers 8 bytes for each document.
class TokenFileWriter {
 public:
  /// `vocabulary` in [1, 2^31). `row`: 0, or what the tokens are packed into. Error when the file cannot be
  /// created.
  TokenFileWriter(std::filesystem::path path, std::int64_t vocabulary, const Hash128& tokenizer = {},
                  std::int64_t row = 0);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  /// What is appended next belongs to a new document. Called before the first token, or never. A document
  /// without a token is none.
  void begin_document();
  /// std::logic_error when a token is outside the vocabulary.
  void append(std::span<const std::int32_t> tokens, bool learned = true);
  /// The same, with a word for each token.
  void append(std::span<const std::int32_t> tokens, const std::vector<bool>& learned);
  std::int64_t size() const { return static_cast<std::int64_t>(header_.count); }
  /// What follows the tokens, header, fsync, rename. Returns the header as written. std::logic_error when
  /// the tokens are not whole rows.
  TokenHeader finish();

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  void put(std::int32_t token, bool learned);
  void put_bytes(const void* data, std::size_t bytes);
  void flush();

  std::filesystem::path path_, aside_;
  files::Fd fd_;
  TokenHeader header_;
  std::vector<std::uint8_t> buffer_;      ///< encoded and not yet written
  std::vector<std::uint64_t> documents_;  ///< first tokens
  std::vector<std::uint8_t> learned_;     ///< bits; empty: all so far are
  bool new_document_ = false;
  std::uint64_t written_ = 0;  ///< bytes on disk, header included
  std::unique_ptr<XXH3_state_s, FreeState> state_;
};

}  // namespace holdfast::data
