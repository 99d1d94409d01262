#include "src/base/env.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include "src/base/error.hpp"

namespace holdfast::env {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::string get_or(const char* name, const std::string& fallback) { return get(name).value_or(fallback); }

std::optional<long> get_integer(const char* name) {
  const auto text = get(name);
  if (!text) return std::nullopt;
  long value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size())
    throw Error(Exit::usage, std::string("the environment variable ") + name + " is not a whole number",
                "it is '" + *text + "'");
  return value;
}

std::vector<std::string> all() {
  std::vector<std::string> out;
  for (char** e = environ; e && *e; ++e) out.emplace_back(*e);
  return out;
}

std::vector<std::string> without(const std::vector<std::string>& prefixes) {
  std::vector<std::string> out;
  for (auto& entry : all()) {
    bool drop = false;
    for (const auto& prefix : prefixes) drop = drop || entry.starts_with(prefix);
    if (!drop) out.push_back(std::move(entry));
  }
  return out;
}

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

}  // namespace holdfast::env
