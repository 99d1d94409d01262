#include <fmt/format.h>

#include "launcher/report/page.hpp"

namespace holdfast::launcher::report {
namespace {

// Everything is in the file: no script, no font, no picture from elsewhere. Without it, the page is plain
// HTML.
constexpr const char* style = R"(<style>
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --rule: #c9d1d9; --line: #1565c0; --fault: #c62828 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #14181d; --rule: #3d444d; --line: #6cb6ff; --fault: #ff8a80 }
}
body { font: 16px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 52rem;
  margin: 0 auto; padding: 1rem }
h1, h2, h3, p, li, td, summary { overflow-wrap: anywhere }
h2 { border-bottom: 1px solid var(--rule); margin-top: 2rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0; border-bottom: 1px solid var(--rule);
  min-width: 3.5rem }
.short { white-space: nowrap }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; margin: 1rem 0 }
svg { display: block; width: 100%; max-width: 32rem; height: auto }
svg .line { stroke: var(--line) }
svg .fault { color: var(--fault) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.8rem }
@media print {
  :root { --ink: #000; --paper: #fff; --rule: #999; --line: #1565c0; --fault: #c62828 }
  body { font-size: 11pt; max-width: none; padding: 0 }
  svg, tr { break-inside: avoid }
  h2, h3 { break-after: avoid }
  .wide { overflow: visible }
}
</style>
)";

std::string row_of(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  // A time, or a name, is not to be broken; where there is no room, the table is moved under the finger.
  constexpr std::size_t longest_short = 20;
  for (const auto& cell : cells)
    out += fmt::format("<{0}{1}>{2}</{0}>", tag, cell.size() <= longest_short ? " class=\"short\"" : "",
                       escaped(cell));
  return out + "</tr>\n";
}

std::string html_of(const Section& s) {
  std::string out = fmt::format("<h{0}>{1}</h{0}>\n", s.level, escaped(s.title));
  for (const auto& paragraph : s.paragraphs) out += fmt::format("<p>{}</p>\n", escaped(paragraph));
  if (!s.table.rows.empty()) {
    out += "<div class=\"wide\"><table>\n";
    if (!s.table.header.empty()) out += "<thead>" + row_of(s.table.header, "th") + "</thead>\n";
    out += "<tbody>\n";
    for (const auto& row : s.table.rows) out += row_of(row, "td");
    out += "</tbody></table></div>\n";
  }
  if (!s.plots.empty()) {
    out += "<div class=\"plots\">\n";
    for (const auto& plot : s.plots) out += svg(plot);
    out += "</div>\n";
  }
  if (!s.items.empty()) {
    out += "<ul>\n";
    for (const auto& item : s.items) out += fmt::format("<li>{}</li>\n", escaped(item));
    out += "</ul>\n";
  }
  if (!s.folded.empty())
    out += fmt::format("<details><summary>{}</summary>\n<pre>{}</pre></details>\n", escaped(s.folded_title),
                       escaped(s.folded));
  return out;
}

}  // namespace

std::string html(const Page& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n{1}</head>\n"
      "<body>\n<h1>{0}</h1>\n",
      escaped(page.title), style);
  for (const auto& section : page.sections) out += html_of(section);
  return out + "</body>\n</html>\n";
}

}  // namespace holdfast::launcher::report
