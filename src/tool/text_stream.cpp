#include "src/tool/text_stream.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/error.hpp"

namespace holdfast::tool {
namespace fs = std::filesystem;
namespace {

Error bad_input(const fs::path& path, std::string why, std::string hint = {}) {
  return {Exit::usage, "cannot use input " + path.string(), std::move(why), std::move(hint)};
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error), end;
  for (; !error && it != end; it.increment(error)) {
    const bool hidden = it->path().filename().string().starts_with('.');
    if (hidden && it->is_directory()) it.disable_recursion_pending();
    if (!hidden && it->is_regular_file()) found.push_back(it->path());
  }
  if (error) throw bad_input(folder, error.message());
  std::sort(found.begin(), found.end());
  return found;
}

/// Length of the well-formed character at `at`, or 0; then `bad` is the length of the maximal malformed
/// subpart. The ranges are Table 3-7 of the Unicode Standard.
std::size_t character_at(std::string_view text, std::size_t at, std::size_t& bad) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    const unsigned next = byte(at + i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return 0;
    bad = i + 1;
  }
  return length;
}

/// Where to cut a line of more than `most` bytes.
std::size_t cut_of(std::string_view line, std::size_t most) {
  const std::size_t space = line.rfind(' ', most - 1);
  if (space != std::string_view::npos && space > 0) return space;
  std::size_t cut = most;
  while (cut > most - 4 && (static_cast<unsigned char>(line[cut]) & 0xC0) == 0x80) --cut;
  return cut;
}

}  // namespace

std::vector<Document> documents_of(const std::vector<fs::path>& inputs,
                                   const std::vector<fs::path>& excluded) {
  const auto is_excluded = [&](const fs::path& path) {
    return std::any_of(excluded.begin(), excluded.end(),
                       [&](const fs::path& other) { return same_file(path, other); });
  };
  std::vector<Document> documents;
  const auto add = [&](const fs::path& path) {
    if (::access(path.c_str(), R_OK) != 0) throw bad_input(path, std::strerror(errno));
    if (const std::uint64_t bytes = fs::file_size(path)) documents.push_back({path, bytes});
  };
  for (const fs::path& input : inputs) {
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    if (!fs::exists(status)) throw bad_input(input, "no such file or folder");
    if (fs::is_directory(status)) {
      for (const fs::path& path : files_below(input)) {
        if (!is_excluded(path)) add(path);
      }
    } else if (!fs::is_regular_file(status)) {
      throw bad_input(input, "neither a regular file nor a folder");
    } else if (is_excluded(input)) {
      throw bad_input(input, "it is also an output", "Choose another --output?");
    } else {
      add(input);
    }
  }
  if (documents.empty()) throw Error(Exit::usage, "there is no text to prepare", "every input is empty");
  return documents;
}

std::uint64_t repair_utf8(std::string& text) {
  std::string repaired;
  std::uint64_t count = 0;
  std::size_t clean = 0, bad = 0;  // [clean, at) is well-formed and not yet copied
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t length = character_at(text, at, bad)) {
      at += length;
      continue;
    }
    repaired.append(text, clean, at - clean).append("\xEF\xBF\xBD");
    at = clean = at + bad;
    ++count;
  }
  if (count > 0) text = repaired.append(text, clean);
  return count;
}

void TextStream::open_next() {
  fd_ = files::open(documents_[following_++].path, O_RDONLY);
  buffer_.clear();
  given_ = 0;
  at_end_ = false;
  open_ = true;
  before_ = Before::document;
}

void TextStream::refill() {
  buffer_.erase(0, given_);
  given_ = 0;
  const std::size_t had = buffer_.size();
  buffer_.resize(had + most_bytes);
  ssize_t got = 0;
  do got = ::read(fd_.get(), buffer_.data() + had, most_bytes);
  while (got < 0 && errno == EINTR);
  if (got < 0) throw system_error("cannot read " + documents_[following_ - 1].path.string(), errno);
  buffer_.resize(had + static_cast<std::size_t>(got));
  at_end_ = got == 0;
}

bool TextStream::next(Piece& piece) {
  while (!open_) {
    if (following_ == documents_.size()) return false;
    open_next();
  }
  std::size_t line_end = buffer_.find('\n', given_);
  while (line_end == std::string::npos && !at_end_ && buffer_.size() - given_ <= most_bytes) {
    refill();
    line_end = buffer_.find('\n');
  }
  const bool ends_line = line_end != std::string::npos;
  const std::string_view line =
      std::string_view(buffer_).substr(given_, ends_line ? line_end - given_ : std::string_view::npos);
  const bool whole = line.size() <= most_bytes;
  piece.text = whole ? line : line.substr(0, cut_of(line, most_bytes));
  piece.before = before_;
  piece.offset = offset_;
  before_ = whole ? Before::newline : Before::text;
  if (whole) open_ = ends_line;  // no line feed: the document ends here
  const std::size_t taken = piece.text.size() + (whole && ends_line ? 1 : 0);
  given_ += taken;
  offset_ += taken;
  replaced_ += repair_utf8(piece.text);
  return true;
}

}  // namespace holdfast::tool
