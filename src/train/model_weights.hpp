#pragma once
// Joins the model, which asks for weights unit by unit, to the shards, which have them. Neither knows the
// other.
#include "src/model/weights.hpp"
#include "src/shard/sharded_weights.hpp"

namespace holdfast::train {

class ModelWeights final : public model::Weights {
 public:
  explicit ModelWeights(shard::ShardedWeights& shards) : shards_(shards) {}
  void acquire(int unit) override { shards_.acquire(unit); }
  const void* weight(int stored) override { return shards_.weight(stored); }
  void release(int unit) override { shards_.release(unit); }
  float* gradient(int stored) override { return shards_.gradient(stored); }
  void reduce(int unit) override { shards_.reduce(unit); }

 private:
  shard::ShardedWeights& shards_;
};

}  // namespace holdfast::train
