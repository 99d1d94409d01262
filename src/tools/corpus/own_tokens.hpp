#pragma once
// Corpora that are tokens already: raw little-endian numbers, and the pairs of files that Megatron-LM's
// IndexedDataset writes.
//
// Megatron's NAME.idx, little endian (megatron/core/datasets/indexed_dataset.py):
//
//     offset  size      field
//          0     9      "MMIDIDX\0\0"
//          9     8      version, 1
//         17     1      type of a token: 8 uint16, 4 int32
//         18     8      S, number of sequences
//         26     8      D, entries of the list of documents
//         34   4 * S    tokens of each sequence
//              8 * S    byte of NAME.bin at which each sequence begins
//              8 * D    first sequence of each document, then S
//
// What follows (modes of multimodal data) is ignored.
//
// Shards of llm.c (dev/data/data_common.py) are raw tokens behind 256 int32: 20240520 (uint16 tokens) or
// 20240801 (uint32), a version, and how many tokens there are.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "src/tools/corpus/inputs.hpp"

namespace holdfast::corpus {

/// A file mapped read-only. An empty one, and no path, has no bytes.
class Mapped {
 public:
  explicit Mapped(const std::filesystem::path& path);
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped();
  std::span<const std::uint8_t> bytes() const { return {map_, size_}; }

 private:
  const std::uint8_t* map_ = nullptr;
  std::size_t size_ = 0;
};

/// A document's place among the bytes of its file.
struct TokenSpan {
  std::uint64_t begin = 0, end = 0;
  bool operator==(const TokenSpan&) const = default;
};

/// A file of tokens, opened and checked: the documents lie within it.
class OwnTokens {
 public:
  /// `document_start`: raw tokens only; nothing: the file is one document. Error (usage) names the file when
  /// its size or its index contradict each other, or its tokens are of another type.
  OwnTokens(const Input& input, std::optional<std::int32_t> document_start);

  /// The next document that is not empty, in the order of the index; false at the end.
  bool next(TokenSpan& document);
  std::uint64_t empty() const { return empty_; }
  /// Bytes per token: 2 or 4.
  std::uint64_t width() const { return width_; }
  std::span<const std::uint8_t> bytes(const TokenSpan& span) const {
    return data_.bytes().subspan(span.begin, span.end - span.begin);
  }
  /// As numbers; `bytes` is a multiple of width(). Error (usage) when one is not in [0, vocabulary).
  void decode(const TokenSpan& span, std::int64_t vocabulary, std::vector<std::int32_t>& out) const;

 private:
  void read_index();
  std::uint64_t header_of_shard() const;
  std::uint32_t token_at(std::uint64_t byte) const;
  TokenSpan document_of_index(std::uint64_t number) const;

  std::filesystem::path path_;
  Mapped index_, data_;
  std::optional<std::int32_t> document_start_;
  bool indexed_;
  std::uint64_t width_ = 2, sequences_ = 0, documents_ = 0;
  std::uint64_t following_ = 0;  ///< raw: byte; index: document
  std::uint64_t empty_ = 0;
};

}  // namespace holdfast::corpus
