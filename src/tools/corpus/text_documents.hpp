#pragma once
// A file of text that is one document, and where such a text may be cut.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "src/tools/corpus/byte_stream.hpp"

namespace holdfast::corpus {

/// A document is held in memory while it is tokenized.
constexpr std::uint64_t max_document_bytes = std::uint64_t{1} << 30;

/// All of a file, as it is. Error (usage) when it has more than `most` bytes.
std::string read_document(const std::filesystem::path& path, Compression compression,
                          std::uint64_t most = max_document_bytes);

/// A text in two: the first ends before, the second begins behind what separated them.
struct Halves {
  std::string_view first, second;
};
/// Cuts before the first line that begins at or behind byte `at`; where there is none within 64 KiB, before a
/// space or else between two characters. `second` is empty when nothing is left for it.
Halves cut_text(std::string_view text, std::uint64_t at);

/// Pieces for a tokenizer's training: lines, long ones in several pieces.
class Pieces {
 public:
  static constexpr std::size_t max_bytes = 1 << 16;  ///< a longer line is cut, before a space if there is one
  explicit Pieces(std::string_view text) : left_(text) {}
  /// False at the end. "a\nb\n" gives "a", "b", "".
  bool next(std::string_view& piece);

 private:
  std::string_view left_;
  bool done_ = false;
};

}  // namespace holdfast::corpus
