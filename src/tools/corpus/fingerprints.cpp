#include "src/tools/corpus/fingerprints.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/tools/corpus/dedupe.hpp"
#include "src/tools/corpus/minhash.hpp"
#include "src/tools/corpus/own_tokens.hpp"
#include "src/tools/corpus/reader.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

// A file of fingerprints: number of documents, number of bands, the hashes of all documents, the bands of
// all. The file of kept documents: how many were removed as equal, as nearly equal, for each part the number
// of its documents, and then a byte for each document. All numbers have 8 bytes, in this machine's order.

template <class T>
void put(std::string& bytes, const T* from, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(from), count * sizeof(T));
}

/// Takes numbers off a file, and complains when there are too few.
class Taken {
 public:
  explicit Taken(const fs::path& path)
      : path_(path), bytes_(files::read_text(path, {.limit = files::no_limit})) {}
  template <class T>
  void take(T* to, std::uint64_t count) {
    if (count > (bytes_.size() - at_) / sizeof(T))
      throw Error(Exit::runtime, path_.string() + " is cut off", "",
                  "Remove it, and run the same command again?");
    std::copy_n(bytes_.data() + at_, count * sizeof(T), reinterpret_cast<char*>(to));
    at_ += count * sizeof(T);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    take(&value, 1);
    return value;
  }
  std::uint64_t left() const { return bytes_.size() - at_; }

 private:
  fs::path path_;
  std::string bytes_;
  std::size_t at_ = 0;
};

std::optional<MinHashShape> shape_of(const Settings& settings) {
  if (settings.dedupe != Dedupe::near) return std::nullopt;
  return shape_for(settings.similarity);
}

void scan_texts(const Plan& plan, const Part& part, Tally& tally, Fingerprints& all) {
  const auto shape = shape_of(plan.settings);
  Reader reader(plan.settings, plan.inputs, part, tally);
  for (Document document; reader.next(document);) {
    all.exact.push_back(data::hash_bytes(document.text));
    if (!shape) continue;
    all.bands.resize(all.bands.size() + as_size(shape->bands));
    band_hashes(document.text, *shape, std::span(all.bands).last(shape->bands));
  }
}

void scan_tokens(const Plan& plan, const Part& part, Tally& tally, Fingerprints& all) {
  for (const Range& range : part) {
    const Input& input = plan.inputs[range.input];
    OwnTokens tokens(input, plan.settings.document_start);
    for (TokenSpan document; tokens.next(document);) {
      const auto bytes = tokens.bytes(document);
      all.exact.push_back(data::hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
      tally.add(bytes.size());
    }
  }
}

}  // namespace

void scan_part(const Plan& plan, std::size_t part, Tally& tally) {
  Fingerprints all;
  (is_tokens(plan.settings.format) ? scan_tokens : scan_texts)(plan, plan.parts[part], tally, all);
  const std::uint64_t documents = all.exact.size();
  const std::uint64_t bands = documents > 0 ? all.bands.size() / documents : 0;
  std::string bytes;
  put(bytes, &documents, 1);
  put(bytes, &bands, 1);
  put(bytes, all.exact.data(), all.exact.size());
  put(bytes, all.bands.data(), all.bands.size());
  files::replace_atomically(plan.work.fingerprints(part), bytes, 0644);
}

bool is_scanned(const Plan& plan, std::size_t part) {
  std::error_code error;
  return fs::exists(plan.work.fingerprints(part), error);
}

void remove_duplicates(const Plan& plan) {
  const auto shape = shape_of(plan.settings);
  const std::uint64_t bands = shape ? static_cast<std::uint64_t>(shape->bands) : 0;
  Fingerprints all;
  std::vector<std::uint64_t> counts;
  for (std::size_t part = 0; part < plan.parts.size(); ++part) {
    if (!is_scanned(plan, part))
      throw Error(Exit::runtime, "part " + std::to_string(part) + " has no fingerprints",
                  plan.work.fingerprints(part).string() + " is missing", "Run the stage 'scan' again?");
    Taken file(plan.work.fingerprints(part));
    const std::uint64_t documents = file.number(), its_bands = file.number();
    const std::uint64_t each = sizeof(data::Hash128) + its_bands * sizeof(std::uint64_t);
    if ((documents > 0 && its_bands != bands) || documents > file.left() / each)
      throw Error(Exit::runtime, plan.work.fingerprints(part).string() + " is damaged", "",
                  "Remove it, and run the same command again?");
    counts.push_back(documents);
    all.exact.resize(all.exact.size() + documents);
    all.bands.resize(all.bands.size() + documents * bands);
    file.take(all.exact.data() + (all.exact.size() - documents), documents);
    file.take(all.bands.data() + (all.bands.size() - documents * bands), documents * bands);
  }
  const Kept kept = dedupe(all, static_cast<int>(bands));
  std::string bytes;
  const std::uint64_t removed[] = {static_cast<std::uint64_t>(kept.exact),
                                   static_cast<std::uint64_t>(kept.near)};
  put(bytes, removed, 2);
  put(bytes, counts.data(), counts.size());
  for (const bool keep : kept.keep) bytes.push_back(keep ? 1 : 0);
  files::replace_atomically(plan.work.kept(), bytes, 0644);
}

bool are_duplicates_removed(const Plan& plan) {
  std::error_code error;
  return fs::exists(plan.work.kept(), error);
}

KeptDocuments::KeptDocuments(const Plan& plan) {
  Taken file(plan.work.kept());
  removed_.exact = static_cast<std::int64_t>(file.number());
  removed_.near = static_cast<std::int64_t>(file.number());
  first_.push_back(0);
  for (std::size_t part = 0; part < plan.parts.size(); ++part)
    first_.push_back(first_.back() + file.number());
  std::string keep(std::min(first_.back(), file.left() + 1), '\0');
  file.take(keep.data(), keep.size());
  keep_.assign(keep.begin(), keep.end());
}

}  // namespace holdfast::corpus
