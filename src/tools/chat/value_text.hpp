#pragma once
// Values as text, letter for letter as Python writes them.
#include <optional>

#include "src/tools/chat/value.hpp"

namespace holdfast::chat {

/// str(). A string keeps what it knows of its origin; undefined is empty.
Text to_text(const Value& value, Budget& budget);

struct JsonStyle {
  bool ascii = false;                  ///< everything else as \uXXXX
  std::optional<std::int64_t> indent;  ///< spaces; nothing: all in one line
  std::string between_items = ", ", between_key_and_value = ": ";
  bool sorted = false;
};

/// json.dumps(); Refusal for what JSON has no word for.
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace holdfast::chat
