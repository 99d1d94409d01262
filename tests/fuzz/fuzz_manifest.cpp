// libFuzzer on manifests. Its mutator repairs the digests, which no random change would leave right: else
// nothing behind the first line would ever be reached.
#include <cstring>
#include <random>

#include "checkpoint/index/hash.hpp"
#include "checkpoint/index/manifest.hpp"
#include "tests/fuzz/targets.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace holdfast::checkpoint;

constexpr std::string_view before_digest = "\"digest\":\"";

/// Puts the right digest into the first line, if there is one.
void repair(std::string& text) {
  const std::size_t key = text.find(before_digest);
  const std::size_t at = key + before_digest.size();
  if (key == std::string::npos || text.size() < at + 32) return;
  const std::string digest = xxh3_128(text.substr(0, at), text.substr(at + 32));
  text.replace(at, 32, digest);
}

/// Changes one number of a manifest that is right, and then what follows from it.
class NumberChanger {
 public:
  explicit NumberChanger(unsigned seed) : random_(seed) {}

  std::string change(Manifest m) {
    if (!m.tensors.empty() && pick(3) == 0) {
      LogicalTensor& tensor = m.tensors[pick(m.tensors.size())];
      change(pick(2) == 0 ? tensor.rows : tensor.cols);
    } else if (!m.shards.empty()) {
      ShardInfo& shard = m.shards[pick(m.shards.size())];
      std::int64_t* const sizes[] = {&shard.bytes, &shard.data_offset, &shard.payload_offset};
      if (m.layout.cuts.empty() || pick(2) == 0) {
        change(*sizes[pick(3)]);
      } else {
        Cut& cut = m.layout.cuts[pick(m.layout.cuts.size())];
        change(pick(2) == 0 ? cut.stride : cut.part);
        if (pick(8) == 0) cut.tensors = static_cast<int>(pick(1000));
        if (pick(8) == 0) m.layout.members = static_cast<int>(pick(1000));
        if (pick(8) == 0) m.layout.cuts.push_back(cut);
      }
    }
    m.state_digest = state_digest(m.tensors, m.digests);
    return to_text(m);
  }

 private:
  std::size_t pick(std::size_t n) { return random_() % n; }
  void change(std::int64_t& number) {
    const std::int64_t edges[] = {0,
                                  1,
                                  4095,
                                  4096,
                                  INT32_MAX,
                                  std::int64_t{1} << 56,
                                  INT64_MAX,
                                  number + 1,
                                  number > 0 ? number - 1 : 0,
                                  number ^ std::int64_t{1} << pick(62)};
    number = edges[pick(std::size(edges))];
  }
  std::minstd_rand random_;
};

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  std::string text;
  if (seed % 3 == 0) {
    try {
      text = NumberChanger(seed).change(parse_manifest({reinterpret_cast<const char*>(data), size}));
    } catch (const std::exception&) {
    }
  }
  if (text.empty()) {
    size = LLVMFuzzerMutate(data, size, max_size);
    if (seed % 16 == 1) return size;  // what does not even match its digest
    text.assign(reinterpret_cast<const char*>(data), size);
    repair(text);
  }
  size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), size);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  holdfast::fuzz::try_manifest({reinterpret_cast<const char*>(data), size});
  return 0;
}
