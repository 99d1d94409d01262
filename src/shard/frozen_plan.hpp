#pragma once
// Where the slices of what is not trained lie in the frozen arena, and as what: in the parameter type, or,
// linear layers of blocks under Policy::base, as codes and scales. Pure; the same on every rank.
#include <cstdint>
#include <vector>

#include "src/shard/layout.hpp"
#include "src/shard/policy.hpp"

namespace holdfast::shard {

/// Of one stored tensor; bytes from the arena's begin. There is room for StoredSlice::stride elements.
struct FrozenPlace {
  std::int64_t values = -1;  ///< elements or codes; -1: the tensor is trained
  std::int64_t scales = 0;
  bool coded = false;
};

struct FrozenPlan {
  std::vector<FrozenPlace> places;  ///< by stored tensor
  std::int64_t bytes = 0;
};

FrozenPlan frozen_plan(const Layout& layout, const Policy& policy);

/// Units are made whole in gather buffers: members share them, or they are kept as something that nobody can
/// compute with.
bool gathers(const Layout& layout, const Policy& policy);

}  // namespace holdfast::shard
