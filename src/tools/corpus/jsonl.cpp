#include "src/tools/corpus/jsonl.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/utf8.hpp"

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

JsonText::JsonText(std::string key)
    : key_(std::move(key)), parser_(std::make_unique<simdjson::dom::parser>(Lines::max_bytes * 4)) {}

JsonText::~JsonText() = default;

std::optional<std::string> JsonText::read(std::string_view padded_line, std::string& text,
                                          std::uint64_t& repaired) {
  // The whole line is parsed, not only up to the key: half a line is broken even if its text is whole.
  simdjson::dom::element root;
  auto problem = parser_->parse(padded_line.data(), padded_line.size(), false).get(root);
  if (problem == simdjson::UTF8_ERROR) {
    repaired_line_ = padded_line;
    repaired += utf8::repair(repaired_line_);
    const std::size_t bytes = repaired_line_.size();
    repaired_line_.append(padding, ' ');
    problem = parser_->parse(repaired_line_.data(), bytes, false).get(root);
  }
  if (problem == simdjson::STRING_ERROR) return "a string in it is malformed";
  if (problem) return "it is no JSON";
  if (!root.is_object()) return "it is no JSON object";
  simdjson::dom::element value;
  if (root.at_key(key_).get(value)) return "it has no key \"" + key_ + "\"";
  std::string_view found;
  if (value.get(found)) return "\"" + key_ + "\" is not a string";
  text = found;
  return std::nullopt;
}

}  // namespace holdfast::corpus
