#pragma once
// JSON Lines: the lines of a file, and the text in one. A file that is one JSON array is read by its
// elements.
#include <cstdint>
#include <filesystem>
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

/// A line of JSON Lines, or an element of an array.
struct Line {
  std::string_view text;    ///< without its line feed; more bytes than simdjson reads ahead are behind it.
                            ///< Until the next call
  std::uint64_t begin = 0;  ///< its first byte's place in the file, before compression
  bool too_long = false;    ///< of more than Lines::max_bytes; `text` is empty then
};

class Records {
 public:
  virtual ~Records() = default;
  /// False at the end.
  virtual bool next(Line& line) = 0;
};

class Lines final : public Records {
 public:
  static constexpr std::size_t max_bytes = 64 << 20;  ///< parsing takes ten times as much memory

  /// The lines that begin in bytes [begin, end) of a stream that was opened at byte begin - 1, or at 0 when
  /// `begin` is 0.
  Lines(std::unique_ptr<ByteStream> stream, std::uint64_t begin, std::uint64_t end);
  /// False at the end. The last line needs no line feed; an empty one behind the last line feed is none.
  bool next(Line& line) override;

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

/// The elements of a file that is one JSON array.
class Elements final : public Records {
 public:
  /// Whether what begins so, white space before it apart, is an array.
  static bool are_in(std::string_view begin);

  /// The stream is read from its begin; `path` is for messages.
  Elements(std::unique_ptr<ByteStream> stream, std::filesystem::path path);
  /// Throws Error (usage) when the array has no end, or something behind it.
  bool next(Line& line) override;

 private:
  /// The next byte, which stays; -1 at the end.
  int peek();
  /// The next byte that is no white space.
  int peek_solid();
  void take() { ++at_; }
  [[noreturn]] void refuse(const std::string& why) const;

  std::unique_ptr<ByteStream> stream_;
  std::filesystem::path path_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, have_ = 0;
  std::uint64_t before_ = 0;  ///< bytes of the file before the buffer
  std::string element_;
  bool begun_ = false, over_ = false;
};

/// Takes the text out of lines. Not thread-safe; each thread has its own.
class JsonText {
 public:
  explicit JsonText(std::string key);
  ~JsonText();

  /// The string under the key into `text`. What is malformed UTF-8 in the line becomes U+FFFD, and
  /// `repaired` grows. Under other keys there may be what only Python takes for JSON (tolerant_json.hpp). Why
  /// the line is broken, or nothing.
  std::optional<std::string> read(std::string_view padded_line, std::string& text, std::uint64_t& repaired);

 private:
  std::string key_, repaired_line_;
  std::unique_ptr<simdjson::dom::parser> parser_;
};

}  // namespace holdfast::corpus
