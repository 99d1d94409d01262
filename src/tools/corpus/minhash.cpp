#include "src/tools/corpus/minhash.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/tools/corpus/signature.hpp"
#include "src/tools/corpus/words.hpp"

namespace holdfast::corpus {
namespace {

constexpr int longest_shingle = 64;
constexpr std::size_t block = 512;  ///< words that are hashed at a time

/// Order counts: a polynomial in an odd number, over the words; the upper half of its mixed bits.
std::uint32_t hash_shingle(std::span<const std::uint64_t> words) {
  std::uint64_t sum = 0;
  for (const std::uint64_t word : words) sum = sum * digest_stride + word;
  return static_cast<std::uint32_t>(mix64(sum) >> 32);
}

void check(const MinHashShape& shape) {
  expects(shape.shingle >= 1 && shape.shingle <= longest_shingle, "a shingle of 1 to 64 words");
  expects(shape.bands >= 1 && shape.rows >= 1 && shape.rows <= max_hashes / shape.bands,
          "bands and rows of at most 1024 hashes");
}

}  // namespace

MinHashShape shape_for(double similarity, int most) {
  expects(similarity > 0 && similarity < 1, "a similarity between 0 and 1");
  expects(most >= 2 && most <= max_hashes, "2 to 1024 hashes");
  MinHashShape best;
  double nearest = std::numeric_limits<double>::infinity();
  for (int rows = 2; rows <= most; ++rows) {
    const int bands = most / rows;
    const double distance = std::abs(std::pow(1.0 / bands, 1.0 / rows) - similarity);
    if (distance < nearest) {
      nearest = distance;
      best.bands = bands;
      best.rows = rows;
    }
  }
  return best;
}

void band_hashes(std::string_view text, const MinHashShape& shape, std::span<std::uint64_t> out) {
  check(shape);
  expects(out.size() == as_size(shape.bands), "a hash per band");
  const auto shingle = as_size(shape.shingle);
  const auto rows = as_size(shape.rows), hashes = out.size() * rows;

  alignas(64) std::array<std::uint32_t, max_hashes> least;
  const std::size_t padded = (hashes + signature_step - 1) / signature_step * signature_step;
  const std::span signature(least.data(), padded);
  std::fill(signature.begin(), signature.end(), ~std::uint32_t{0});

  std::array<std::uint64_t, longest_shingle + block> words;
  std::array<std::uint32_t, longest_shingle + block> shingles;
  Words source(text);
  bool any = false;
  std::size_t kept = 0;  // words that shingles of the next block begin with
  for (;;) {
    const std::size_t read = source.next(std::span(words).subspan(kept, block));
    const std::size_t held = kept + read;
    const std::size_t count = held < shingle ? 0 : held - shingle + 1;
    for (std::size_t i = 0; i < count; ++i)
      shingles[i] = hash_shingle(std::span<const std::uint64_t>(words).subspan(i, shingle));
    lower(signature, std::span(shingles).first(count));
    any = any || count > 0;
    if (read < block) break;
    kept = shingle - 1;
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(held - kept), kept, words.begin());
  }

  std::fill(out.begin(), out.end(), 0);
  if (!any) return;
  for (std::size_t i = 0; i < hashes; ++i) out[i / rows] = mix64(out[i / rows] + digest_stride + least[i]);
}

}  // namespace holdfast::corpus
