#include "src/tools/text/unicode.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

namespace holdfast::text {
namespace {

// Runs of one category: first code point << 5 | category. `scripts/proof/tokenizers_compared.py categories`
// prints it.
constexpr std::uint32_t runs[] = {
#include "src/tools/text/unicode_categories.inc"
};

std::unique_ptr<std::array<Category, end_of_unicode>> unpacked() {
  auto table = std::make_unique<std::array<Category, end_of_unicode>>();
  for (std::size_t i = 0; i < std::size(runs); ++i) {
    const std::uint32_t end = i + 1 < std::size(runs) ? runs[i + 1] >> 5 : end_of_unicode;
    std::fill(table->begin() + (runs[i] >> 5), table->begin() + end, static_cast<Category>(runs[i] & 31));
  }
  return table;
}

}  // namespace

const std::array<Category, end_of_unicode>& categories() {
  static const auto table = unpacked();
  return *table;
}

}  // namespace holdfast::text
