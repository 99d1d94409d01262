#pragma once
// TOML text as flat entries with line numbers. The only file behind which the TOML library is known: its
// header is slow.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace holdfast::config {

/// A value no setting has: a date, a nested list. Kept so that the error can name setting and line.
struct Unusable {
  std::string what;
  bool operator==(const Unusable&) const = default;
};

using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                           std::vector<double>, Unusable>;

/// One key of a document, or, with an empty key, the header of a table.
struct Entry {
  std::string table;  ///< "" for keys above the first table
  int element = -1;   ///< of an array of tables, [[unit]]: which one; else -1
  std::string key;
  Value value;
  int line = 0;  ///< from 1
};

struct Document {
  std::string name;            ///< as it appears in messages, for example job.toml
  std::vector<Entry> entries;  ///< in the order of their lines
  std::string where(const Entry& entry) const { return name + ":" + std::to_string(entry.line); }
};

/// Throws Error (usage) with the line of a syntax error, and for a file that cannot be read.
Document read_document(const std::filesystem::path& file);
Document parse_document(std::string_view text, const std::string& name);
/// One TOML value, for example 3 or ["a", "b"]; nothing when `text` is not exactly one.
std::optional<Value> parse_value(std::string_view text);

/// The TOML spelling of a value; whatever a string holds comes back from `parse_value`. Strings must be
/// UTF-8.
std::string spell(const Value& value);

}  // namespace holdfast::config
