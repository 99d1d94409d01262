#pragma once
// Plain text as a stream of short pieces, so that a corpus of any size is read with a few kilobytes of
// memory.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/files.hpp"

namespace holdfast::tool {

/// A file with text in it: one document.
struct Document {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
};

/// The documents behind `inputs`, in the order given: a file stands for itself; a folder for all regular
/// files below it, sorted by path, without those whose name (or whose folder's name) begins with a dot and
/// without `excluded` (our own output, which may lie in that folder). Empty files are left out. Error (usage)
/// when an input is missing or not readable, when `excluded` is given as an input, or when no text is left.
std::vector<Document> documents_of(const std::vector<std::filesystem::path>& inputs,
                                   const std::vector<std::filesystem::path>& excluded);

/// Replaces every malformed part of `text` by U+FFFD, as the Unicode Standard advises (one for each maximal
/// subpart); returns how many were replaced.
std::uint64_t repair_utf8(std::string& text);

/// What stood before a piece.
enum class Before {
  document,  ///< nothing: the piece begins a document
  newline,   ///< a line feed, which is not part of any piece
  text,      ///< the same line, which was too long for one piece
};

struct Piece {
  std::string text;  ///< valid UTF-8 without line feeds; may be empty
  Before before = Before::document;
  std::uint64_t offset = 0;  ///< bytes of all documents before this piece
};

/// Reads documents one after the other. A document "a\nb\n" gives the pieces "a", "b", "": joined by line
/// feeds they are the document again.
class TextStream {
 public:
  static constexpr std::size_t most_bytes = 1
                                            << 16;  ///< a longer line is cut, before a space if there is one

  explicit TextStream(std::vector<Document> documents) : documents_(std::move(documents)) {}
  /// False at the end, and then `piece` is unspecified. Error when a file cannot be read.
  bool next(Piece& piece);
  std::uint64_t replaced() const { return replaced_; }  ///< malformed parts so far

 private:
  void refill();
  void open_next();

  std::vector<Document> documents_;
  std::size_t following_ = 0;  ///< the document to open when the present one ends
  files::Fd fd_;
  std::string buffer_;     ///< read
  std::size_t given_ = 0;  ///< bytes of buffer_ given out as pieces
  bool at_end_ = true;     ///< nothing more to read into buffer_
  bool open_ = false;      ///< another piece of the present document follows
  Before before_ = Before::document;
  std::uint64_t offset_ = 0, replaced_ = 0;
};

}  // namespace holdfast::tool
