#include "src/train/loop/loss_memory.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>

#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

constexpr char before_best = '+';
constexpr std::size_t digits_of_word = 16;
using Words = std::array<std::uint64_t, 4>;

Words words_of(const optim::BestLoss& best) {
  return {std::bit_cast<std::uint64_t>(best.loss), static_cast<std::uint64_t>(best.step),
          std::bit_cast<std::uint64_t>(best.to_beat), static_cast<std::uint64_t>(best.waited)};
}

optim::BestLoss best_from(std::string_view text) {
  Words words{};
  bool whole = text.size() == words.size() * digits_of_word;
  for (std::size_t i = 0; whole && i < words.size(); ++i) {
    const char *first = text.data() + i * digits_of_word, *last = first + digits_of_word;
    whole = std::from_chars(first, last, words[i], 16).ptr == last;
  }
  if (!whole)
    throw Error(Exit::runtime, "the checkpoint's best held-out loss cannot be read",
                fmt::format("{} digits, or some that are not hexadecimal", text.size()));
  return {std::bit_cast<double>(words[0]), static_cast<std::int64_t>(words[1]),
          std::bit_cast<double>(words[2]), static_cast<std::int64_t>(words[3])};
}

}  // namespace

std::string to_text(const LossMemory& memory) {
  std::string text = to_text(memory.guard);
  if (memory.best == optim::BestLoss{}) return text;
  text += before_best;
  for (const std::uint64_t word : words_of(memory.best)) text += fmt::format("{:016x}", word);
  return text;
}

LossMemory loss_memory_from_text(const std::string& text) {
  const auto at = text.find(before_best);
  LossMemory memory{guard_from_text(text.substr(0, at)), {}};
  if (at != std::string::npos) memory.best = best_from(std::string_view(text).substr(at + 1));
  return memory;
}

}  // namespace holdfast::train
