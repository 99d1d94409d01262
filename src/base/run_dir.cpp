#include "src/base/run_dir.hpp"

#include <fmt/core.h>

#include <charconv>

#include "src/base/as_size.hpp"

namespace holdfast {
namespace {

constexpr std::string_view flight_prefix = "flight.";

/// Takes a number from the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(as_size(end - text.data()));
  return number;
}

}  // namespace

std::string flight_record_file(int attempt, int rank) {
  return fmt::format("{}{}.{}", flight_prefix, attempt, rank);
}

std::optional<int> attempt_of_flight_record(std::string_view name) {
  if (!name.starts_with(flight_prefix)) return std::nullopt;
  name.remove_prefix(flight_prefix.size());
  const auto attempt = take_number(name);
  if (!attempt || !name.starts_with('.')) return std::nullopt;
  name.remove_prefix(1);
  return take_number(name) && name.empty() ? attempt : std::nullopt;
}

}  // namespace holdfast
