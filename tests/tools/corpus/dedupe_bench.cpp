// What it costs to find duplicates: prints one JSON object. scripts/bench/dedupe.sh runs it.
//   dedupe_bench [FILE] [DOCUMENTS=1000000]     FILE: text to hash; else generated words
#include <fmt/core.h>
#include <sys/resource.h>

#include <ctime>
#include <fstream>
#include <iterator>

#include "src/base/as_size.hpp"
#include "src/tools/corpus/dedupe.hpp"
#include "src/tools/corpus/pack.hpp"
#include "src/tools/corpus/signature.hpp"
#include "src/tools/corpus/words.hpp"
#include "tests/tools/corpus/generated.hpp"

namespace holdfast::corpus {
namespace {

/// Of the processor, which does nothing else: what others do on the machine matters less.
template <class Work>
double seconds_of(Work work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

/// Of five.
template <class Work>
double median_seconds(Work work) {
  std::vector<double> all(5);
  for (double& one : all) one = seconds_of(work);
  std::sort(all.begin(), all.end());
  return all[2];
}

std::string read(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string generated() {
  Dice dice(1);
  std::string text;
  while (text.size() < std::size_t{16} << 20) text += some_word(dice) + ' ';
  return text;
}

/// Documents of 14 bands, a fifth of them like an earlier one.
Fingerprints fingerprints(std::size_t documents, int bands) {
  Dice dice(2);
  const auto each = as_size(bands);
  Fingerprints all;
  all.exact.resize(documents);
  all.bands.resize(documents * each);
  for (std::size_t i = 0; i < documents; ++i) {
    for (auto& byte : all.exact[i]) byte = static_cast<std::uint8_t>(dice.next());
    const bool like = i > 0 && dice.below(5) == 0;
    const std::size_t other = like ? dice.below(i) : 0;
    for (std::size_t b = 0; b < each; ++b)
      all.bands[i * each + b] = like && dice.below(2) == 0 ? all.bands[other * each + b] : dice.next();
  }
  return all;
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void run(int argc, char** argv) {
  const std::string text = argc > 1 && *argv[1] != '\0' ? read(argv[1]) : generated();
  const auto documents = as_size(argc > 2 ? std::stoull(argv[2]) : 1'000'000);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  const MinHashShape shape;
  std::vector<std::uint64_t> bands(shape.bands), words(512);

  // As documents are: 4000 bytes at a time.
  const double hash = median_seconds([&] {
    for (std::size_t at = 0; at < text.size(); at += 4000)
      band_hashes(std::string_view(text).substr(at, 4000), shape, bands);
  });
  const double split = median_seconds([&] {
    Words source(text);
    while (source.next(words) == words.size()) {
    }
  });

  // Millions of shingles per second, of 112 hashes each, by what the processor has.
  std::vector<std::uint32_t> signature(112, ~0u), elements(512);
  for (std::uint32_t i = 0; i < elements.size(); ++i) elements[i] = i * 0x9e3779b9u;
  double shingles[2] = {};
  for (const Lanes lanes : {Lanes::plain, Lanes::avx2})
    if (lanes <= widest_lanes())
      shingles[static_cast<int>(lanes)] = 0.512 / median_seconds([&] {
                                            for (int i = 0; i < 1000; ++i) lower(signature, elements, lanes);
                                          });

  const Fingerprints all = fingerprints(documents, shape.bands);
  const long before = peak_kib();
  Kept kept;
  const double dedupe_s = seconds_of([&] { kept = dedupe(all, shape.bands); });
  const long after = peak_kib();

  Dice dice(3);
  std::vector<std::int64_t> lengths(documents);
  for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(400 * std::exp(1.2 * dice.normal()));
  std::size_t rows = 0;
  const double pack_s = seconds_of([&] {
    Packer packer(4096);
    std::vector<Row> out;
    for (std::size_t i = 0; i < documents; ++i) {
      packer.add(static_cast<std::int64_t>(i), lengths[i], out);
      rows += out.size();
      out.clear();
    }
  });

  const auto count = static_cast<double>(documents);
  fmt::print(
      R"({{"text_mb": {:.1f}, "minhash_mb_per_s": {:.1f}, "words_mb_per_s": {:.1f}, "mshingles_per_s": )"
      R"({{"plain": {:.1f}, "avx2": {:.1f}}}, "documents": {}, )"
      R"("dedupe_documents_per_s": {:.0f}, "dedupe_bytes_per_document": {:.1f}, "removed_near": {}, )"
      R"("pack_documents_per_s": {:.0f}, "rows": {}}})"
      "\n",
      megabytes, megabytes / hash, megabytes / split, shingles[0], shingles[1], documents, count / dedupe_s,
      static_cast<double>(after - before) * 1024 / count, kept.near, count / pack_s, rows);
}

}  // namespace
}  // namespace holdfast::corpus

int main(int argc, char** argv) { holdfast::corpus::run(argc, argv); }
