#pragma once
// What the value of one setting may be, and what is said when it is something else.
#include <limits>
#include <string>
#include <vector>

#include "src/config/toml_document.hpp"

namespace holdfast::config {

enum class Kind { boolean, integer, number, text, choice, list, numbers };

/// What a value must be, whatever struct it goes to.
struct Rule {
  std::string table, key, help;
  Kind kind = Kind::text;
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};
  bool lone = false;  ///< of a list: a text stands for a list of one, an empty one for an empty list
  std::string name() const { return table + "." + key; }
};

/// The value as the rule's kind (an integer becomes a number where one is wanted). Throws Error (usage) that
/// names the setting and `where` ("job.toml:12"): wrong type, out of range, not one of the choices, NUL in a
/// text, a control character in a name (`run.name`, `cluster.name`, ...).
Value fit(const Rule& rule, Value value, const std::string& where);

/// What somebody typed after `=` in --set or in the environment: the TOML spelling, or, where a text is
/// wanted, plain text.
Value from_text(const Rule& rule, const std::string& text);

/// "HOLDFAST_SET_TRAIN__STEPS" for train.steps
std::string variable_of(const Rule& rule);

}  // namespace holdfast::config
