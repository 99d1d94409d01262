#include "launcher/watch/curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "launcher/report/plot.hpp"
#include "src/base/as_size.hpp"
#include "src/base/utf8.hpp"

namespace holdfast::launcher::watch {
namespace {

using report::Point;

constexpr int axis_width = 8;  // of values, with the blank behind them

/// Dots, several of which make a character.
class Canvas {
 public:
  Canvas(int width, int height, Charset charset)
      : across_(charset == Charset::utf8 ? 2 : 1),
        down_(charset == Charset::utf8 ? 4 : 1),
        width_(width),
        rows_(as_size(height), std::vector<std::uint32_t>(as_size(width), 0)) {}

  int dots_across() const { return across_ * width_; }
  int dots_down() const { return down_ * static_cast<int>(rows_.size()); }

  void dot(int x, int y) {
    // The eight dots of a Braille character, as Unicode numbers them: by place in a row of two, four rows.
    constexpr std::array<std::array<std::uint32_t, 2>, 4> bits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    rows_[y / down_][x / across_] |= bits[y % down_][x % across_];
  }
  void line(int x0, int y0, int x1, int y1) {
    const int dots = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= dots; ++i)
      dot(x0 + static_cast<int>(std::lround(static_cast<double>(x1 - x0) * i / dots)),
          y0 + static_cast<int>(std::lround(static_cast<double>(y1 - y0) * i / dots)));
  }
  std::string row(std::size_t number) const {
    constexpr std::uint32_t braille = 0x2800;
    std::string out;
    for (const std::uint32_t bits : rows_[number])
      if (bits == 0)
        out += ' ';
      else if (down_ == 1)
        out += '*';
      else
        utf8::append(out, braille + bits);
    return out;
  }

 private:
  int across_, down_, width_;
  std::vector<std::vector<std::uint32_t>> rows_;
};

std::string label(double value) {
  return fmt::format("{:>{}} ", report::short_number(value), axis_width - 1);
}

/// Steps below the curve: the first and the last one, and an 'x' for each failure between them.
std::string axis(std::int64_t first, std::int64_t last, const FailedAt& failed, int width) {
  const std::string begin = std::to_string(first), end = "step " + std::to_string(last);
  std::string out(as_size(width), ' ');
  out.replace(0, std::min(begin.size(), out.size()), begin, 0, out.size());
  if (end.size() + begin.size() + 1 <= out.size()) out.replace(out.size() - end.size(), end.size(), end);
  for (const std::int64_t step : failed)
    if (step >= first && step <= last && last > first)
      out[as_size((step - first) * (width - 1) / (last - first))] = 'x';
  return out;
}

}  // namespace

std::vector<std::string> curve(const std::vector<Point>& points, const FailedAt& failed, int width,
                               int height, Charset charset) {
  std::vector<std::string> out;
  const int across = width - axis_width, down = height - 1;
  if (points.size() < 2 || across < 8 || down < 2) {
    out.assign(as_size(std::max(height, 1)), padded("", width));
    out[out.size() / 2] = padded(points.size() < 2 ? "        no steps to draw yet" : "", width);
    return out;
  }
  const auto by_value = [](const Point& a, const Point& b) { return a.value < b.value; };
  const auto [low, high] = std::minmax_element(points.begin(), points.end(), by_value);
  const std::int64_t first = points.front().step, last = std::max(points.back().step, first + 1);
  Canvas canvas(across, down, charset);
  const auto x = [&](const Point& p) {
    return static_cast<int>((p.step - first) * (canvas.dots_across() - 1) / (last - first));
  };
  const auto y = [&](const Point& p) {
    const double above =
        high->value > low->value ? (high->value - p.value) / (high->value - low->value) : 0.5;
    return static_cast<int>(std::lround(above * (canvas.dots_down() - 1)));
  };
  for (std::size_t i = 1; i < points.size(); ++i)
    canvas.line(x(points[i - 1]), y(points[i - 1]), x(points[i]), y(points[i]));
  for (int row = 0; row < down; ++row)
    out.push_back((row == 0          ? label(high->value)
                   : row + 1 == down ? label(low->value)
                                     : std::string(axis_width, ' ')) +
                  canvas.row(as_size(row)));
  out.push_back(std::string(axis_width, ' ') + axis(first, last, failed, across));
  return out;
}

}  // namespace holdfast::launcher::watch
