#pragma once
// JSON Lines: the lines of a file, and the text in one.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tools/corpus/byte_stream.hpp"

namespace simdjson::dom {
class parser;
}

namespace holdfast::corpus {

struct Line {
  std::string_view text;    ///< without its line feed; more bytes than simdjson reads ahead are behind it.
                            ///< Until the next call
  std::uint64_t begin = 0;  ///< its first byte's place in the file, before compression
  bool too_long = false;    ///< of more than Lines::max_bytes; `text` is empty then
};

class Lines {
 public:
  static constexpr std::size_t max_bytes = 64 << 20;  ///< parsing takes ten times as much memory

  /// The lines that begin in bytes [begin, end) of a stream that was opened at byte begin - 1, or at 0 when
  /// `begin` is 0.
  Lines(std::unique_ptr<ByteStream> stream, std::uint64_t begin, std::uint64_t end);
  /// False at the end. The last line needs no line feed; an empty one behind the last line feed is none.
  bool next(Line& line);

 private:
  bool refill();
  /// Reads up to the next line feed and forgets all of it. False at the end of the stream.
  bool skip_line();

  std::unique_ptr<ByteStream> stream_;
  std::uint64_t end_, place_;  ///< `place_`: of buffer_[given_] in the file
  std::vector<char> buffer_;
  std::size_t given_ = 0, have_ = 0;  ///< buffer_[given_, have_) was read and not given out
  bool skip_first_ = false;
};

/// Takes the text out of lines. Not thread-safe; each thread has its own.
class JsonText {
 public:
  explicit JsonText(std::string key);
  ~JsonText();

  /// The string under the key into `text`. What is malformed UTF-8 in the line becomes U+FFFD, and
  /// `repaired` grows. Why the line is broken, or nothing.
  std::optional<std::string> read(std::string_view padded_line, std::string& text, std::uint64_t& repaired);

 private:
  std::string key_, repaired_line_;
  std::unique_ptr<simdjson::dom::parser> parser_;
};

}  // namespace holdfast::corpus
