#include "src/train/loop/detector_text.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

constexpr std::size_t word_digits = 16;  // of a word

}  // namespace

std::string to_text(const optim::GuardState& state) {
  if (state == optim::GuardState{}) return "";
  std::string text = fmt::format("{:016x}{:016x}", state.steps, state.skips);
  for (const auto* ring : {&state.losses, &state.norms})
    for (double x : *ring) text += fmt::format("{:016x}", std::bit_cast<std::uint64_t>(x));
  return text;
}

optim::GuardState guard_from_text(const std::string& text) {
  optim::GuardState state;
  if (text.empty()) return state;
  std::size_t at = 0;
  const auto word = [&] {
    std::uint64_t value = 0;
    const char *first = text.data() + at, *last = first + word_digits;
    if (at + word_digits > text.size() || std::from_chars(first, last, value, 16).ptr != last)
      throw Error(Exit::runtime, "the checkpoint's detector of spikes cannot be read",
                  fmt::format("{} digits, or some that are not hexadecimal", text.size()));
    at += word_digits;
    return value;
  };
  state.steps = word();
  state.skips = word();
  for (auto* ring : {&state.losses, &state.norms})
    for (double& x : *ring) x = std::bit_cast<double>(word());
  if (at != text.size())
    throw Error(Exit::runtime, "the checkpoint's detector of spikes cannot be read",
                fmt::format("{} digits, not {}", text.size(), at));
  return state;
}

}  // namespace holdfast::train
