#include "launcher/report/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/printable.hpp"

namespace holdfast::launcher::report {
namespace {

constexpr double width = 440, height = 250, left = 62, right = 20, top = 32, bottom = 36;

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", size < 1e-12 ? 0.0 : value);
}

std::vector<double> ticks(double low, double high) {
  if (!(high > low)) {
    const double around = std::max(std::abs(low) * 0.1, 1e-6);
    low -= around;
    high += around;
  }
  const double raw = (high - low) / 4, power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0})
    if (raw > step) step = factor * power;
  std::vector<double> out;
  const double first = std::floor(low / step);
  for (int i = 0; i < 8; ++i) {
    out.push_back((first + i) * step);
    if (out.back() >= high - step * 1e-9) break;
  }
  return out;
}

std::string escaped(const std::string& text, Quotes quotes) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += quotes == Quotes::keep ? "\"" : "&quot;";
        break;
      case '\'':
        out += quotes == Quotes::keep ? "'" : "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string svg(const Plot& plot) {
  if (plot.points.size() < 2) return "";
  const auto by_value = [](const Point& a, const Point& b) { return a.value < b.value; };
  const auto [low, high] = std::minmax_element(plot.points.begin(), plot.points.end(), by_value);
  const auto rows = ticks(low->value, high->value);
  const auto first = static_cast<double>(plot.points.front().step),
             last = static_cast<double>(std::max(plot.points.back().step, plot.points.front().step + 1));
  const auto x = [&](double step) {
    return left + (std::clamp(step, first, last) - first) / (last - first) * (width - left - right);
  };
  const auto y = [&](double value) {
    return height - bottom - (value - rows.front()) / (rows.back() - rows.front()) * (height - top - bottom);
  };
  const std::string title = escaped(plot.title);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" aria-label=\"{2}\" font-family=\"sans-serif\" font-size=\"14\" fill=\"currentColor\">\n"
      "<text x=\"{3}\" y=\"14\" font-weight=\"bold\">{2}</text>\n",
      width, height, title, left);
  for (const double value : rows)
    out += fmt::format(
        "<path d=\"M{0} {1:.1f}H{2}\" stroke=\"currentColor\" stroke-opacity=\"0.2\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        left, y(value), width - right, left - 6, y(value) + 4, short_number(value));
  for (const double step : ticks(first, last))
    if (step >= first && step <= last && step == std::floor(step))
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(step),
                         height - bottom + 17, short_number(step));
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">step</text>\n", width - right, height - 4);
  // An attempt often goes on at the step at which the one before it failed: its label stands on the other
  // side.
  for (const bool faults : {false, true})
    for (const auto& mark : plot.marks) {
      if (mark.fault != faults) continue;
      const double at = x(static_cast<double>(mark.step));
      out += fmt::format(
          "<g{}><title>{}</title><path d=\"M{:.1f} {}V{}\" stroke=\"currentColor\" stroke-dasharray=\"{}\"/>"
          "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\" font-size=\"13\">{}</text></g>\n",
          mark.fault ? " class=\"fault\" color=\"#c62828\"" : "", escaped(mark.words), at, top,
          height - bottom, mark.fault ? "none" : "3 3", at + (mark.fault ? -2 : 2), top - 3,
          mark.fault ? "end" : "start", escaped(mark.label));
    }
  out += "<polyline class=\"line\" fill=\"none\" stroke=\"#1565c0\" stroke-width=\"1.5\" points=\"";
  for (const auto& point : plot.points)
    out += fmt::format("{:.1f},{:.1f} ", x(static_cast<double>(point.step)), y(point.value));
  return out + "\"/>\n</svg>\n";
}

}  // namespace holdfast::launcher::report
