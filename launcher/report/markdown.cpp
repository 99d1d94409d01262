#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "launcher/report/page.hpp"

namespace holdfast::launcher::report {
namespace {

/// One line of text in which no character has a meaning for Markdown or for the HTML in it.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : escaped(text, Quotes::keep)) {
    if (std::string_view("\\`*_[]|~").find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' || c == '\t' ? ' ' : c;
  }
  return out;
}

std::string row_of_cells(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const auto& cell : cells) out += " " + plain(cell) + " |";
  return out + "\n";
}

/// A fence of backticks that is longer than any in the text.
std::string fenced(const std::string& text) {
  std::size_t longest = 2, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{0}toml\n{1}{0}\n", fence, text.ends_with('\n') ? text : text + "\n");
}

std::string markdown_of(const Section& s) {
  std::string out = fmt::format("\n{} {}\n", std::string(s.level == 3 ? 3 : 2, '#'), plain(s.title));
  for (const auto& paragraph : s.paragraphs) out += "\n" + plain(paragraph) + "\n";
  if (!s.table.rows.empty()) {
    const std::size_t columns = s.table.rows.front().size();
    out += "\n" + row_of_cells(s.table.header.empty() ? std::vector<std::string>(columns) : s.table.header) +
           "|";
    for (std::size_t i = 0; i < columns; ++i) out += "---|";
    out += "\n";
    for (const auto& row : s.table.rows) out += row_of_cells(row);
  }
  if (!s.items.empty()) out += "\n";
  for (const auto& item : s.items) out += "- " + plain(item) + "\n";
  if (!s.folded.empty()) out += fmt::format("\n### {}\n\n{}", plain(s.folded_title), fenced(s.folded));
  return out;
}

}  // namespace

std::string markdown(const Page& page) {
  std::string out = "# " + plain(page.title) + "\n";
  for (const auto& section : page.sections) out += markdown_of(section);
  return out;
}

}  // namespace holdfast::launcher::report
