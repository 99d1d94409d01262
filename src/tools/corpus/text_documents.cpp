#include "src/tools/corpus/text_documents.hpp"

#include <algorithm>

#include "src/base/error.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::corpus {
namespace {

/// The place at or before `at` where a character begins.
std::size_t character_border(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && utf8::continues(text[at])) --at;
  return at;
}

}  // namespace

std::string read_document(const std::filesystem::path& path, Compression compression, std::uint64_t most) {
  const auto stream = open_stream(path, compression);
  std::string text;
  std::size_t have = 0;
  for (;;) {
    if (have == text.size()) text.resize(std::max<std::size_t>(2 * have, 1 << 16));
    const std::size_t got = stream->read(text.data() + have, text.size() - have);
    if (got == 0) break;
    have += got;
    if (have > most)
      throw Error(Exit::usage, "cannot use input " + path.string(),
                  "it is one document of more than " + std::to_string(most) + " bytes",
                  "Write its documents as JSON Lines, or cut it into files?");
  }
  text.resize(have);
  return text;
}

Halves cut_text(std::string_view text, std::uint64_t at) {
  if (at == 0) return {{}, text};
  if (at >= text.size()) return {text, {}};
  const std::string_view near = text.substr(0, std::min<std::uint64_t>(text.size(), at + Pieces::max_bytes));
  if (const std::size_t feed = near.find('\n', at - 1); feed != std::string_view::npos)
    return {text.substr(0, feed), text.substr(feed + 1)};
  if (const std::size_t space = near.find(' ', at); space != std::string_view::npos)
    return {text.substr(0, space), text.substr(space)};
  const std::size_t border = character_border(text, at);
  return {text.substr(0, border), text.substr(border)};
}

bool Pieces::next(std::string_view& piece) {
  if (done_) return false;
  const std::size_t feed = left_.substr(0, max_bytes + 1).find('\n');
  if (feed != std::string_view::npos) {
    piece = left_.substr(0, feed);
    left_.remove_prefix(feed + 1);
    return true;
  }
  if (left_.size() <= max_bytes) {
    piece = left_;
    done_ = true;
    return true;
  }
  const std::size_t space = left_.rfind(' ', max_bytes - 1);
  const std::size_t cut =
      space != std::string_view::npos && space > 0 ? space : character_border(left_, max_bytes);
  piece = left_.substr(0, cut);
  left_.remove_prefix(cut);
  return true;
}

}  // namespace holdfast::corpus
