#include "launcher/watch/text.hpp"

#include <algorithm>

#include "src/base/utf8.hpp"

namespace holdfast::launcher::watch {
namespace {

constexpr char escape = '\x1b';

/// One column in every terminal. It leaves out combining marks, signs of direction, and all wide characters.
bool of_one_column(std::uint32_t c) {
  return (c >= 0xA0 && c < 0x300 && c != 0xAD) || (c >= 0x370 && c < 0x483) || (c >= 0x48A && c < 0x530) ||
         (c >= 0x2010 && c <= 0x2027) || c == 0x20AC || c == 0x2212;
}

}  // namespace

std::string printable(std::string_view text, Charset charset) {
  std::string clean(text), out;
  utf8::repair(clean);
  for (std::size_t i = 0; i < clean.size(); i += utf8::character_bytes(clean[i])) {
    const std::uint32_t c = utf8::code_point(clean.data() + i);
    if (c < 0x80)
      out += c < 0x20 || c == 0x7F ? ' ' : static_cast<char>(c);
    else if (charset == Charset::utf8 && of_one_column(c))
      out.append(clean, i, utf8::character_bytes(clean[i]));
    else
      out += '?';
  }
  return out;
}

int columns(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !utf8::continues(byte); }));
}

std::string fitted(std::string_view text, int width) {
  if (width <= 0) return "";
  if (columns(text) <= width) return std::string(text);
  std::size_t end = 0;
  for (int i = 0; i + 1 < width; ++i) end += utf8::character_bytes(text[end]);
  return std::string(text.substr(0, end)) + "~";
}

std::string padded(std::string_view text, int width) {
  std::string out = fitted(text, width);
  out.append(static_cast<unsigned>(std::max(0, width - columns(out))), ' ');
  return out;
}

std::string typed(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != escape || i + 1 == bytes.size()) {
      out += bytes[i];
      continue;
    }
    if (const auto arrow = bytes.substr(i, 3); arrow == "\x1b[D" || arrow == "\x1bOD")
      out += '<';
    else if (arrow == "\x1b[C" || arrow == "\x1bOC")
      out += '>';
    ++i;  // Alt and a character, or what begins a longer sequence
    if (bytes[i] == 'O')
      ++i;
    else if (bytes[i] == '[')
      do ++i;
      while (i < bytes.size() && (bytes[i] < 0x40 || bytes[i] > 0x7E));
  }
  return out;
}

}  // namespace holdfast::launcher::watch
