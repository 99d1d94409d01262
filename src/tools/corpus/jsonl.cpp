#include "src/tools/corpus/jsonl.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"
#include "src/tools/corpus/tolerant_json.hpp"

namespace holdfast::corpus {
namespace {

constexpr std::size_t first_bytes = 1 << 20, padding = simdjson::SIMDJSON_PADDING;

}  // namespace

Lines::Lines(std::unique_ptr<ByteStream> stream, std::uint64_t begin, std::uint64_t end)
    : stream_(std::move(stream)),
      end_(end),
      place_(begin > 0 ? begin - 1 : 0),
      buffer_(first_bytes + padding),
      skip_first_(begin > 0) {}

bool Lines::refill() {
  if (given_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + given_, have_ - given_);
    have_ -= given_;
    given_ = 0;
  }
  if (have_ + padding == buffer_.size()) buffer_.resize(std::min(2 * have_, max_bytes + 1) + padding);
  const std::size_t got = stream_->read(buffer_.data() + have_, buffer_.size() - padding - have_);
  have_ += got;
  return got > 0;
}

bool Lines::skip_line() {
  for (;;) {
    const char* from = buffer_.data() + given_;
    const auto* feed = static_cast<const char*>(std::memchr(from, '\n', have_ - given_));
    const std::size_t gone = feed ? as_size(feed - from) + 1 : have_ - given_;
    given_ += gone;
    place_ += gone;
    if (feed) return true;
    if (!refill()) return false;
  }
}

bool Lines::next(Line& line) {
  // A line that began before us is another part's. We came one byte early to see whether one does.
  if (skip_first_ && !skip_line()) return false;
  skip_first_ = false;
  if (place_ >= end_) return false;
  line.begin = place_;
  line.too_long = false;
  for (std::size_t looked = 0;;) {
    const char* from = buffer_.data() + given_;
    const auto* feed = static_cast<const char*>(std::memchr(from + looked, '\n', have_ - given_ - looked));
    looked = have_ - given_;
    if (feed) {
      line.text = {from, as_size(feed - from)};
      given_ += line.text.size() + 1;
      place_ += line.text.size() + 1;
      return true;
    }
    if (looked > max_bytes) {
      line.too_long = true;
      line.text = {};
      skip_line();
      return true;
    }
    if (!refill()) {
      line.text = {buffer_.data() + given_, have_ - given_};
      given_ = have_;
      place_ += line.text.size();
      return !line.text.empty();
    }
  }
}

bool Elements::are_in(std::string_view begin) {
  if (begin.starts_with("\xEF\xBB\xBF")) begin.remove_prefix(3);
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && begin[first] == '[';
}

Elements::Elements(std::unique_ptr<ByteStream> stream, std::filesystem::path path)
    : stream_(std::move(stream)), path_(std::move(path)), buffer_(first_bytes) {}

void Elements::refuse(const std::string& why) const {
  throw Error(Exit::usage, "cannot use input " + path_.string(), why, "Get the file again?");
}

int Elements::peek() {
  if (at_ == have_) {
    before_ += have_;
    at_ = 0;
    have_ = stream_->read(buffer_.data(), buffer_.size());
    if (have_ == 0) return -1;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

int Elements::peek_solid() {
  for (int c = peek();; c = peek()) {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return c;
    take();
  }
}

bool Elements::next(Line& line) {
  if (over_) return false;
  if (!begun_) {
    while (peek_solid() != '[' && peek() >= 0) take();  // a mark of the byte order
    begun_ = true;
    take();
    if (peek_solid() == ']') over_ = true;
  } else {
    take();  // the comma behind the element before
  }
  if (over_) return false;

  peek_solid();
  line.begin = before_ + at_;
  line.too_long = false;
  element_.clear();
  int depth = 0;
  bool in_string = false, skips = false;  // skips: the next byte is behind a backslash
  for (;; take()) {
    const int c = peek();
    if (c < 0) refuse("it is a JSON array that is cut off: it has no end");
    if (!in_string && depth == 0 && (c == ',' || c == ']')) break;
    if (in_string) {
      in_string = skips || c != '"';
      skips = !skips && c == '\\';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      depth = std::max(depth - 1, 0);
    }
    if (element_.size() <= Lines::max_bytes) element_.push_back(static_cast<char>(c));
  }
  if (peek() == ']') {
    take();
    over_ = true;
    if (peek_solid() >= 0) refuse("there is something behind the end of its JSON array");
  }
  if (element_.size() > Lines::max_bytes) {
    line.too_long = true;
    element_.clear();
  }
  const std::size_t bytes = element_.size();
  element_.append(padding, ' ');
  line.text = std::string_view(element_).substr(0, bytes);
  return true;
}

JsonText::JsonText(std::string key)
    : key_(std::move(key)), parser_(std::make_unique<simdjson::dom::parser>(Lines::max_bytes * 4)) {}

JsonText::~JsonText() = default;

std::optional<std::string> JsonText::read(std::string_view padded_line, std::string& text,
                                          std::uint64_t& repaired) {
  // The whole line is parsed, not only up to the key: half a line is broken even if its text is whole.
  simdjson::dom::element root;
  auto problem = parser_->parse(padded_line.data(), padded_line.size(), false).get(root);
  if (problem && problem != simdjson::CAPACITY) {
    repaired_line_ = padded_line;
    if (problem == simdjson::UTF8_ERROR) repaired += utf8::repair(repaired_line_);
    repaired_line_ = tolerant_json(repaired_line_, "0", repaired);
    const std::size_t bytes = repaired_line_.size();
    repaired_line_.append(padding, ' ');
    problem = parser_->parse(repaired_line_.data(), bytes, false).get(root);
  }
  if (problem == simdjson::STRING_ERROR) return "a string in it is malformed";
  if (problem == simdjson::DEPTH_ERROR) return "its JSON is nested too deeply";
  if (problem) return "it is no JSON";
  simdjson::dom::object object;
  if (root.get(object)) return "it is no JSON object";
  simdjson::dom::element value;
  int times = 0;
  for (const simdjson::dom::key_value_pair field : object)
    if (field.key == key_) {
      value = field.value;
      ++times;
    }
  if (times == 0) return "it has no key \"" + key_ + "\"";
  if (times > 1) return "it has the key \"" + key_ + "\" twice";
  std::string_view found;
  if (value.get(found)) return "\"" + key_ + "\" is not a string";
  text = found;
  return std::nullopt;
}

}  // namespace holdfast::corpus
