#pragma once
// A line over steps as SVG: no script, no style sheet needed, readable in black and white. Pure.
#include <string>
#include <vector>

#include "launcher/report/series.hpp"

namespace holdfast::launcher::report {

/// Something that happened at a step.
struct Mark {
  std::int64_t step = 0;
  std::string label;  ///< one or two characters
  std::string words;  ///< shown when the pointer rests on it
  bool fault = false;
};

struct Plot {
  std::string title;  ///< with the unit
  std::vector<Point> points;
  std::vector<Mark> marks;
};

/// A value with four digits, as people read it: 20000 as 20k.
std::string short_number(double value);
/// Round values that cover [low, high], between 3 and 7 of them.
std::vector<double> ticks(double low, double high);
enum class Quotes { replace, keep };  ///< attributes need them replaced
/// Text for HTML and XML: & < > " ' are replaced, and so is what no document may contain.
std::string escaped(const std::string& text, Quotes quotes = Quotes::replace);
/// An <svg> element; of fewer than two points, an empty text.
std::string svg(const Plot& plot);

}  // namespace holdfast::launcher::report
