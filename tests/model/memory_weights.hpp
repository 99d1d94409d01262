#pragma once
// Weights and gradients of a whole model in memory: what a trainer of one rank would hold. Checks the order
// of the calls.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/model/init.hpp"
#include "src/model/weights.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::testing {

class MemoryWeights : public model::Weights {
 public:
  MemoryWeights(const config::ModelShape& shape, std::uint64_t seed, tensor::DType type = tensor::DType::fp32)
      : specs(config::tensors_of(shape)),
        frozen_specs(config::frozen_tensors_of(shape)),
        stored(config::stored_tensors_of(shape)),
        type_(type) {
    for (const auto& t : stored) {
      if (t.frozen) frozen.insert(static_cast<int>(values.size()));
      values.emplace_back(as_size(t.elements()));
      gradients.emplace_back(values.back().size());
      rounded_.emplace_back(type == tensor::DType::bf16 ? values.back().size() : 0);
      std::span<float> rest(values.back());
      for (int p = t.first_part; p < t.first_part + t.parts; ++p) {
        const auto& spec = (t.frozen ? frozen_specs : specs)[p];
        const auto n = as_size(spec.elements());
        model::initial_weights(shape, spec, seed, 0, rest.first(n));
        rest = rest.subspan(n);
      }
    }
  }

  void acquire(int unit) override {
    if (!acquired_.insert(unit).second) throw std::logic_error("acquired twice");
    round(unit);
    calls.push_back('a'), calls.push_back(static_cast<char>('0' + unit));
  }
  const void* weight(int t) override {
    if (!acquired_.contains(stored.at(t).unit)) throw std::logic_error("weight of a unit that is not there");
    return address(t);
  }
  void release(int unit) override {
    if (acquired_.erase(unit) == 0) throw std::logic_error("released without being there");
    calls.push_back('r'), calls.push_back(static_cast<char>('0' + unit));
  }
  /// The buffer is full of rubbish when it is first asked for.
  float* gradient(int t) override {
    if (frozen.contains(t)) return nullptr;
    auto& g = gradients.at(t);
    if (open_.insert(t).second) std::fill(g.begin(), g.end(), 1e30f);
    return g.data();
  }
  void reduce(int unit) override {
    for (std::size_t t = 0; t < stored.size(); ++t) {
      const int index = static_cast<int>(t);
      if (stored[t].unit == unit && !frozen.contains(index) && open_.erase(index) == 0)
        throw std::logic_error("reduced without a gradient");
    }
    calls.push_back('g'), calls.push_back(static_cast<char>('0' + unit));
  }
  /// Brings the bf16 copies of a unit up to date with `values`, as acquire() does.
  void round(int unit) {
    for (std::size_t t = 0; t < stored.size(); ++t)
      if (stored[t].unit == unit && type_ == tensor::DType::bf16)
        std::transform(values[t].begin(), values[t].end(), rounded_[t].begin(), tensor::to_bf16);
  }
  const void* address(int t) const {
    const auto i = as_size(t);
    if (type_ == tensor::DType::bf16) return rounded_[i].data();
    return values[i].data();
  }
  bool idle() const { return acquired_.empty() && open_.empty(); }

  std::vector<config::TensorSpec> specs, frozen_specs;
  std::vector<config::StoredTensor> stored;
  std::vector<std::vector<float>> values, gradients;  ///< by stored tensor
  std::set<int> frozen;                               ///< stored tensors without a gradient
  std::string calls;                                  ///< a0 = acquire unit 0, r0 = release, g0 = reduce

 private:
  tensor::DType type_;
  std::vector<std::vector<tensor::Bf16>> rounded_;  ///< values in bf16, since acquire()
  std::set<int> acquired_, open_;
};

/// Products add the gradients of the blocks' linear layers to what is there.
class AddingWeights final : public MemoryWeights {
 public:
  using MemoryWeights::MemoryWeights;
  explicit AddingWeights(const MemoryWeights& begun) : MemoryWeights(begun) {}
  bool adds(int t) override { return stored.at(t).linear; }
  float* gradient(int t) override {
    const std::vector<float> before = gradients.at(t);
    float* const there = MemoryWeights::gradient(t);  // full of rubbish, or begun by the head
    if (there != nullptr && adds(t)) std::copy(before.begin(), before.end(), there);
    return there;
  }
};

/// Products round the gradients of the blocks' linear layers to bf16: they lie at the beginning of
/// `gradients`.
class RoundingWeights final : public MemoryWeights {
 public:
  explicit RoundingWeights(const MemoryWeights& begun) : MemoryWeights(begun) {}
  tensor::DType gradient_type(int t) override {
    return stored.at(t).linear ? tensor::DType::bf16 : tensor::DType::fp32;
  }
  /// As fp32.
  std::vector<float> gradient_of(int t) const {
    const auto& there = gradients.at(t);
    if (!stored.at(t).linear) return there;
    std::vector<float> out;
    const auto* const rounded = reinterpret_cast<const tensor::Bf16*>(there.data());
    for (std::size_t i = 0; i < there.size(); ++i) out.push_back(tensor::to_float(rounded[i]));
    return out;
  }
};

/// What they leave is what was rounded behind the product.
inline bool rounded_once(const MemoryWeights& whole, const RoundingWeights& w) {
  for (std::size_t t = 0; t < w.stored.size(); ++t) {
    std::vector<float> want = whole.gradients[t];
    if (w.stored[t].linear)
      for (float& x : want) x = tensor::to_float(tensor::to_bf16(x));
    if (w.gradient_of(static_cast<int>(t)) != want) return false;
  }
  return true;
}

/// The same without checks and diary, which allocate and take time.
class PlainWeights : public model::Weights {
 public:
  explicit PlainWeights(MemoryWeights& memory) : memory_(memory) {
    for (const auto& t : memory.stored) memory.round(t.unit);
  }
  void acquire(int) override {}
  const void* weight(int t) override { return memory_.address(t); }
  void release(int) override {}
  float* gradient(int t) override { return memory_.gradients[t].data(); }
  void reduce(int) override {}

 private:
  MemoryWeights& memory_;
};

}  // namespace holdfast::testing
