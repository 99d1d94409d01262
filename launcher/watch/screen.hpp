#pragma once
// What `holdfast watch` shows: facts and the size of a terminal in, lines out. Pure.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/facts.hpp"
#include "launcher/supervise/status_view.hpp"
#include "launcher/watch/text.hpp"

namespace holdfast::launcher::watch {

/// A node that trains, as the leader knows it at this moment.
struct LiveNode {
  std::string node;
  std::int64_t step = -1;             ///< of its rank that is least far; -1: not known
  std::map<std::string, int> phases;  ///< ranks in each
};

/// Of the file system that checkpoints lie on.
struct Disk {
  double free_bytes = 0;        ///< for this user
  double checkpoint_bytes = 0;  ///< of the newest checkpoint; 0: not known
  int kept = 0, keep = 0;       ///< durable checkpoints there are; checkpoint.keep
  double archive_h = 0;         ///< checkpoint.archive_h
  double between_s = 0;         ///< between the newest two checkpoints; 0: not known
};

struct View {
  StatusFacts status;
  report::Metrics metrics;
  std::vector<LogEntry> events;
  std::vector<LiveNode> live;  ///< empty: nobody has told
  std::optional<Disk> disk;
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

/// What is free, and for how long it is enough; empty: nothing is known.
Line disk_line(const Disk& disk);

/// `height` lines. On a screen below the least size one of them says so.
std::vector<Line> screen(const View& view, int width, int height, Charset charset);

}  // namespace holdfast::launcher::watch
