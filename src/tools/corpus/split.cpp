#include "src/tools/corpus/split.hpp"

#include <cmath>

#include "src/tools/corpus/text_documents.hpp"

namespace holdfast::corpus {
namespace {

/// Byte of a file's text at which the tail begins.
std::uint64_t border_in(const Input& input, const Border& border, std::uint64_t text_bytes) {
  if (input.compression == Compression::none) return border.at;
  const double share = static_cast<double>(border.at) / static_cast<double>(input.bytes);
  return static_cast<std::uint64_t>(share * static_cast<double>(text_bytes));
}

}  // namespace

Sides sides_of(const Plan& plan, const Document& document) {
  const double fraction = plan.settings.val_fraction;
  const std::string_view text = document.text;
  if (fraction == 0) return {text, {}};
  if (plan.settings.split == Split::documents)
    return is_held_out(data::hash_bytes(text), fraction) ? Sides{{}, text} : Sides{text, {}};
  const Input& input = plan.inputs[document.input];
  if (input.format == Format::text && document.input == plan.border.input) {
    const Halves halves = cut_text(text, border_in(input, plan.border, text.size()));
    return {halves.first, halves.second};
  }
  return plan.border.is_behind(document.input, document.begin) ? Sides{{}, text} : Sides{text, {}};
}

bool is_held_out(const data::Hash128& hash, double val_fraction) {
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < sizeof first; ++i) first = first << 8 | hash[i];
  return first < static_cast<std::uint64_t>(std::ldexp(val_fraction, 64));
}

}  // namespace holdfast::corpus
