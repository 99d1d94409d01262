#pragma once
// What `holdfast watch` shows: facts and the size of a terminal in, lines out. Pure.
#include <string>
#include <vector>

#include "launcher/report/facts.hpp"
#include "launcher/supervise/status_view.hpp"
#include "launcher/watch/text.hpp"

namespace holdfast::launcher::watch {

struct View {
  StatusFacts status;
  report::Metrics metrics;
  std::vector<LogEntry> events;
  double now = 0;      ///< Unix seconds
  std::string gap;     ///< what cannot be read at the moment; empty: nothing
  std::string footer;  ///< the last line
};

enum class Style { plain, good, warning, bad, heading, curve };

struct Line {
  std::string text;  ///< printable, and not wider than the screen
  Style style = Style::plain;
  bool operator==(const Line&) const = default;
};

constexpr int least_width = 40, least_height = 16;

/// `height` lines. On a screen below the least size one of them says so.
std::vector<Line> screen(const View& view, int width, int height, Charset charset);

}  // namespace holdfast::launcher::watch
