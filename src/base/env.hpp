#pragma once
// The only place that reads the environment.
#include <optional>
#include <string>
#include <vector>

namespace holdfast::env {

/// The variable's value, or nothing when it is unset.
std::optional<std::string> get(const char* name);
std::string get_or(const char* name, const std::string& fallback);
/// A whole decimal number; an Error (usage) names the variable when it is set but is not one.
std::optional<long> get_integer(const char* name);

/// A copy of the environment as "NAME=value" strings.
std::vector<std::string> all();
/// `all()` without variables whose names start with one of `prefixes`.
std::vector<std::string> without(const std::vector<std::string>& prefixes);
void set(const char* name, const std::string& value);

}  // namespace holdfast::env
