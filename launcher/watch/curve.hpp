#pragma once
// A line over steps in characters. Pure.
#include <string>
#include <vector>

#include "launcher/report/series.hpp"
#include "launcher/watch/text.hpp"

namespace holdfast::launcher::watch {

/// Attempts that failed, at these steps.
using FailedAt = std::vector<std::int64_t>;

/// `height` lines (at least 3) of `width` columns: the curve with the values of its highest and its lowest
/// row, and the axis of steps, with an 'x' where an attempt failed. With Charset::utf8 a character has 2 x 4
/// dots (Braille), else one. Of fewer than two points it says that there is none yet.
std::vector<std::string> curve(const std::vector<report::Point>& points, const FailedAt& failed, int width,
                               int height, Charset charset);

}  // namespace holdfast::launcher::watch
