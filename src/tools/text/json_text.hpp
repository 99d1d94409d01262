#pragma once
// JSON from files that others wrote.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/base/error.hpp"

namespace holdfast::text {

/// Error (usage) when `text` is not JSON, or nested deeper than any tokenizer is; `name` is for messages.
nlohmann::json parse_json(std::string_view text, const std::string& name);

Error damaged_json(const std::string& name, const std::string& why);
Error unsupported_json(const std::string& name, const std::string& what);
/// The same of a file beside the tokenizer's own.
Error unsupported_beside(const std::string& name, const std::string& what);

}  // namespace holdfast::text
