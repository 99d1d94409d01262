#include "src/tools/corpus/dedupe.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::corpus {
namespace {

template <class Key>
struct Keyed {
  Key key;
  std::uint32_t document;
  bool operator<(const Keyed& other) const {
    return std::tie(key, document) < std::tie(other.key, other.document);
  }
};

/// Sorts, and calls `use` with each two or more of one key, in the order of documents.
template <class Key, class Use>
void each_group(std::vector<Keyed<Key>>& all, Use use) {
  std::sort(all.begin(), all.end());
  for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
    for (end = first + 1; end < all.size() && all[end].key == all[first].key;) ++end;
    if (end - first > 1) use(std::span<const Keyed<Key>>(all).subspan(first, end - first));
  }
}

void remove_equal(const std::vector<data::Hash128>& hashes, Kept& kept) {
  using Halves = std::pair<std::uint64_t, std::uint64_t>;
  std::vector<Keyed<Halves>> all(hashes.size());
  for (std::uint32_t document = 0; document < all.size(); ++document) {
    Halves halves;
    std::memcpy(&halves.first, hashes[document].data(), 8);
    std::memcpy(&halves.second, hashes[document].data() + 8, 8);
    all[document] = {halves, document};
  }
  each_group(all, [&](auto group) {
    for (const auto& copy : group.subspan(1)) kept.keep[copy.document] = false;
    kept.exact += std::ssize(group) - 1;
  });
}

/// A document is one of a group that share a band.
struct Member {
  std::uint32_t document, group;
};

/// The groups of one band.
struct Band {
  std::vector<Member> members;  ///< in the order of documents
  std::vector<bool> has_kept;   ///< per group: one of its documents was kept
  std::size_t at = 0;           ///< the next of `members` in the walk over documents
};

Band groups_of(const Fingerprints& all, std::size_t bands, std::size_t band, const std::vector<bool>& keep) {
  std::vector<Keyed<std::uint64_t>> hashes;
  hashes.reserve(all.exact.size());
  for (std::uint32_t document = 0; document < all.exact.size(); ++document)
    if (const std::uint64_t hash = all.bands[document * bands + band]; keep[document] && hash != 0)
      hashes.push_back({hash, document});
  Band made;
  std::uint32_t groups = 0;
  each_group(hashes, [&](auto group) {
    for (const auto& one : group) made.members.push_back({one.document, groups});
    ++groups;
  });
  made.members.shrink_to_fit();
  std::sort(made.members.begin(), made.members.end(),
            [](const Member& a, const Member& b) { return a.document < b.document; });
  made.has_kept.resize(groups);
  return made;
}

void remove_near(const Fingerprints& all, std::size_t bands, Kept& kept) {
  std::vector<Band> shared(bands);
  for (std::size_t band = 0; band < bands; ++band) shared[band] = groups_of(all, bands, band, kept.keep);

  std::vector<std::vector<bool>::reference> touched;  // of the document at hand: its groups' has_kept
  for (std::uint32_t document = 0; document < all.exact.size(); ++document) {
    touched.clear();
    for (Band& band : shared)
      if (band.at < band.members.size() && band.members[band.at].document == document)
        touched.push_back(band.has_kept[band.members[band.at++].group]);
    if (std::any_of(touched.begin(), touched.end(), [](bool has_kept) { return has_kept; })) {
      kept.keep[document] = false;
      ++kept.near;
    } else {
      for (auto has_kept : touched) has_kept = true;
    }
  }
}

}  // namespace

Kept dedupe(const Fingerprints& all, int bands) {
  expects(bands >= 0 && all.bands.size() == all.exact.size() * as_size(bands), "`bands` hashes per document");
  expects(all.exact.size() < std::numeric_limits<std::uint32_t>::max(), "fewer than 2^32 documents");
  Kept kept;
  kept.keep.assign(all.exact.size(), true);
  remove_equal(all.exact, kept);
  if (bands > 0) remove_near(all, as_size(bands), kept);
  return kept;
}

}  // namespace holdfast::corpus
