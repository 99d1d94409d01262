#include "src/config/mixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <span>

#include "src/base/error.hpp"

namespace holdfast::config {
namespace {

/// The weight is what follows the last space: a path may have spaces too.
MixturePart parse_part(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::usage, fmt::format("data.mixture: \"{}\" is not a part of a mixture", text), why,
                "Write \"PATH WEIGHT\", for example \"code.bin 0.3\"?");
  };
  const auto space = text.rfind(' ');
  if (space == std::string::npos || space == 0) refuse("it is not a path and a number");
  MixturePart out{text.substr(0, space), 0};
  const char *first = text.data() + space + 1, *end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(first, end, out.weight);
  if (failure != std::errc{} || stop != end || !std::isfinite(out.weight) || out.weight <= 0)
    refuse(fmt::format("the weight must be a number above 0, not '{}'", text.substr(space + 1)));
  return out;
}

}  // namespace

std::vector<MixturePart> mixture_of(const Data& data) {
  if (data.mixture.empty()) {
    if (data.tokens.empty()) return {};
    return {{data.tokens, 1}};
  }
  if (!data.tokens.empty())
    throw Error(Exit::usage, "data.tokens and data.mixture are both set",
                "a run trains on one token file or on a mixture",
                "Make the token file a part of the mixture?");
  if (data.mixture.size() > max_mixture_parts)
    throw Error(Exit::usage, fmt::format("data.mixture has {} parts", data.mixture.size()),
                fmt::format("there can be {}", max_mixture_parts), "Prepare some of them as one token file?");
  std::vector<MixturePart> out;
  for (const std::string& text : data.mixture) out.push_back(parse_part(text));
  return out;
}

std::vector<std::string> names_of_parts(const std::vector<MixturePart>& parts) {
  const auto stem = [](const MixturePart& part) { return std::filesystem::path(part.path).stem().string(); };
  std::vector<std::string> out;
  for (const MixturePart& part : parts) {
    const auto alike = std::ranges::count(parts, stem(part), stem);
    const auto before = std::ranges::count(std::span(parts.data(), &part), part.path, &MixturePart::path);
    out.push_back(alike == 1 ? stem(part) : part.path);
    if (before > 0) out.back() += fmt::format(" ({})", before + 1);
  }
  return out;
}

std::vector<std::string> names_of_files(const std::vector<std::string>& paths) {
  std::vector<MixturePart> parts;
  for (const std::string& path : paths) parts.push_back({path, 1});
  return names_of_parts(parts);
}

std::string text_of(const MixturePart& part) { return fmt::format("{} {}", part.path, part.weight); }

}  // namespace holdfast::config
