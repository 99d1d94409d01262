#pragma once
// Weights and gradients of a whole model in memory: what a trainer of one rank would hold. Checks the order
// of the calls.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/model/init.hpp"
#include "src/model/weights.hpp"

namespace holdfast::testing {

class MemoryWeights : public model::Weights {
 public:
  MemoryWeights(const config::ModelShape& shape, std::uint64_t seed)
      : specs(config::tensors_of(shape)), stored(config::stored_tensors_of(shape)) {
    for (const auto& t : stored) {
      values.emplace_back(static_cast<std::size_t>(t.elements()));
      gradients.emplace_back(values.back().size());
      std::span<float> rest(values.back());
      for (int p = t.first_part; p < t.first_part + t.parts; ++p) {
        const auto& spec = specs[static_cast<std::size_t>(p)];
        const auto n = static_cast<std::size_t>(spec.elements());
        model::initial_weights(shape, spec, seed, 0, rest.first(n));
        rest = rest.subspan(n);
      }
    }
  }

  void acquire(int unit) override {
    if (!acquired_.insert(unit).second) throw std::logic_error("acquired twice");
    calls.push_back('a'), calls.push_back(static_cast<char>('0' + unit));
  }
  const float* weight(int t) override {
    if (!acquired_.contains(stored.at(static_cast<std::size_t>(t)).unit))
      throw std::logic_error("weight of a unit that is not there");
    return values[static_cast<std::size_t>(t)].data();
  }
  void release(int unit) override {
    if (acquired_.erase(unit) == 0) throw std::logic_error("released without being there");
    calls.push_back('r'), calls.push_back(static_cast<char>('0' + unit));
  }
  /// The buffer is full of rubbish when it is first asked for.
  float* gradient(int t) override {
    auto& g = gradients.at(static_cast<std::size_t>(t));
    if (open_.insert(t).second) std::fill(g.begin(), g.end(), 1e30f);
    return g.data();
  }
  void reduce(int unit) override {
    for (std::size_t t = 0; t < stored.size(); ++t)
      if (stored[t].unit == unit && open_.erase(static_cast<int>(t)) == 0)
        throw std::logic_error("reduced without a gradient");
    calls.push_back('g'), calls.push_back(static_cast<char>('0' + unit));
  }
  bool idle() const { return acquired_.empty() && open_.empty(); }

  std::vector<config::TensorSpec> specs;
  std::vector<config::StoredTensor> stored;
  std::vector<std::vector<float>> values, gradients;  ///< by stored tensor
  std::string calls;                                  ///< a0 = acquire unit 0, r0 = release, g0 = reduce

 private:
  std::set<int> acquired_, open_;
};

}  // namespace holdfast::testing
