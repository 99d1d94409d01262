#include "src/base/printable.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <streambuf>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/utf8.hpp"

namespace holdfast {
namespace {

bool obeyed(std::uint32_t c) {
  return (c < 0x20 && c != '\t' && c != '\n') || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E ||
         c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/// `text` is valid UTF-8. `after_return`: the text before it ended with a carriage return.
std::string without_controls(std::string_view text, bool& after_return) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8::character_bytes(text[at]);
    const std::uint32_t c = utf8::code_point(text.data() + at);
    const bool second = std::exchange(after_return, c == '\r') && c == '\n';
    if (c == '\r')
      out += '\n';
    else if (obeyed(c))
      out += utf8::replacement;
    else if (!second)
      out.append(text, at, bytes);
    at += bytes;
  }
  return out;
}

/// Keeps the beginning of a character whose end has not come yet.
class FilterBuffer final : public std::streambuf {
 public:
  explicit FilterBuffer(std::streambuf& to) : to_(to) {}
  std::streambuf& target() { return to_; }
  /// The end of the text.
  void finish() {
    utf8::repair(waiting_);
    pass(std::exchange(waiting_, {}));
  }
  void pass_all() {
    finish();
    all_ = true;
  }

 private:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    if (all_) return to_.sputn(bytes, count);
    waiting_.append(bytes, as_size(count));
    return pass(utf8::take_settled(waiting_)) ? count : 0;
  }
  int sync() override { return to_.pubsync(); }
  bool pass(const std::string& text) {
    const std::string clean = without_controls(text, after_return_);
    const auto size = static_cast<std::streamsize>(clean.size());
    return to_.sputn(clean.data(), size) == size;
  }

  std::streambuf& to_;
  std::string waiting_;
  bool after_return_ = false, all_ = false;
};

}  // namespace

std::string printable(std::string_view text) {
  std::string clean(text);
  utf8::repair(clean);
  bool after_return = false;
  return without_controls(clean, after_return);
}

std::string printable_line(std::string_view text) {
  std::string line = printable(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

struct PrintableStreams::Filter {
  explicit Filter(std::ostream& of) : stream(of), buffer(*of.rdbuf()) { of.rdbuf(&buffer); }
  ~Filter() {
    buffer.finish();
    stream.rdbuf(&buffer.target());
    stream.flush();
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  std::ostream& stream;
  FilterBuffer buffer;
};

PrintableStreams::PrintableStreams()
    : out_(std::make_unique<Filter>(std::cout)),
      err_(std::make_unique<Filter>(std::cerr)),
      log_(std::make_unique<Filter>(std::clog)) {}
PrintableStreams::~PrintableStreams() = default;

void write_data_from_now_on() {
  auto* const filter = dynamic_cast<FilterBuffer*>(std::cout.rdbuf());
  if (filter && ::isatty(STDOUT_FILENO) == 0) filter->pass_all();
}

}  // namespace holdfast
