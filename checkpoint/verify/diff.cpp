#include "checkpoint/verify/diff.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "checkpoint/io/direct_reader.hpp"
#include "checkpoint/shards/load.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr std::int64_t window_bytes = 32 << 20;

using ByName = std::unordered_map<std::string, std::size_t>;

ByName by_name(const Manifest& manifest) {
  ByName index;
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) index[manifest.tensors[t].name] = t;
  return index;
}

std::vector<FactDifference> diff_facts(const Manifest& a, const Manifest& b) {
  std::vector<FactDifference> found;
  const auto compare = [&](const char* name, const std::string& before, const std::string& after) {
    if (before != after) found.push_back({name, before, after});
  };
  compare("step", std::to_string(a.point.step), std::to_string(b.point.step));
  compare("tokens", std::to_string(a.point.tokens), std::to_string(b.point.tokens));
  compare("samples", std::to_string(a.point.samples), std::to_string(b.point.samples));
  compare("detector", a.point.detector, b.point.detector);
  compare("scaling", a.point.scaling, b.point.scaling);
  compare("model", a.facts.model_toml, b.facts.model_toml);
  compare("world", std::to_string(a.facts.world), std::to_string(b.facts.world));
  compare("strategy", a.facts.strategy, b.facts.strategy);
  compare("numerics", a.facts.numerics, b.facts.numerics);
  compare("data", a.facts.data_identity, b.facts.data_identity);
  compare("seed", std::to_string(a.facts.seed), std::to_string(b.facts.seed));
  compare("config", a.facts.config_hash, b.facts.config_hash);
  return found;
}

/// Elements of one type, side by side.
template <class T>
void compare_elements(const std::byte* before, const std::byte* after, std::int64_t count,
                      ValueDifference& found) {
  for (std::int64_t i = 0; i < count; ++i) {
    T x, y;
    std::memcpy(&x, before + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&y, after + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    if (std::memcmp(&x, &y, sizeof(T)) == 0) continue;
    ++found.different;
    const double a = to_float(x), b = to_float(y);
    double absolute = std::abs(a - b);
    if (std::isnan(absolute)) absolute = std::numeric_limits<double>::infinity();
    const double larger = std::max(std::abs(a), std::abs(b));
    const double relative = std::isinf(absolute) ? absolute : larger > 0 ? absolute / larger : 0;  // 0 and -0
    found.max_absolute = std::max(found.max_absolute, absolute);
    found.max_relative = std::max(found.max_relative, relative);
  }
}

/// One checkpoint, read tensor range by tensor range.
class RangeReader {
 public:
  RangeReader(fs::path step_dir, const Manifest& manifest, const std::string& name)
      : step_dir_(std::move(step_dir)), manifest_(manifest), buffer_(window_bytes) {
    into_.tensors = manifest_.tensors;
    tensor_ = static_cast<int>(by_name(manifest_).at(name));
  }
  const LogicalTensor& tensor() const { return into_.tensors[tensor_]; }
  const std::byte* read(std::int64_t first, std::int64_t count) {
    into_.pieces = {{tensor_, first, count, buffer_.span().data()}};
    manifest_ = load(step_dir_, std::move(manifest_), into_).manifest;
    return buffer_.span().data();
  }

 private:
  fs::path step_dir_;
  Manifest manifest_;
  AlignedBuffer buffer_;
  State into_;
  int tensor_ = 0;
};

}  // namespace

Difference diff(const Manifest& before, const Manifest& after) {
  Difference found;
  found.facts = diff_facts(before, after);
  const ByName there = by_name(after), here = by_name(before);
  for (std::size_t t = 0; t < before.tensors.size(); ++t) {
    const LogicalTensor& tensor = before.tensors[t];
    const auto other = there.find(tensor.name);
    if (other == there.end())
      found.removed.push_back(tensor.name);
    else if (tensor == after.tensors[other->second] && before.digests[t] == after.digests[other->second])
      ++found.same;
    else
      found.changed.push_back({tensor.name, tensor, after.tensors[other->second]});
  }
  for (const LogicalTensor& tensor : after.tensors)
    if (!here.contains(tensor.name)) found.added.push_back(tensor.name);
  return found;
}

ValueDifference diff_values(const fs::path& before, const Manifest& before_manifest, const fs::path& after,
                            const Manifest& after_manifest, const std::string& tensor,
                            const CopyProgress& progress) {
  RangeReader x(before, before_manifest, tensor), y(after, after_manifest, tensor);
  expects(x.tensor() == y.tensor(), "tensors of one shape and type are compared");
  ValueDifference found;
  found.elements = x.tensor().elements();
  const DType type = x.tensor().type;
  const std::int64_t at_once = window_bytes / bytes_of(type);
  for (std::int64_t first = 0; first < found.elements; first += at_once) {
    const std::int64_t count = std::min(at_once, found.elements - first);
    const std::byte *a = x.read(first, count), *b = y.read(first, count);
    if (type == DType::fp32)
      compare_elements<float>(a, b, count, found);
    else
      compare_elements<Bf16>(a, b, count, found);
    if (progress) progress(first + count, found.elements);
  }
  return found;
}

}  // namespace holdfast::checkpoint
