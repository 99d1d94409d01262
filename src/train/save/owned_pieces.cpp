#include "src/train/save/owned_pieces.hpp"

#include <array>

#include "src/base/error.hpp"

namespace holdfast::train {

namespace {
constexpr std::size_t arena_count = 3;  // parameters and both moments, in the order of the pieces
}

OwnedPieces::OwnedPieces(const checkpoint::State& owned, const shard::Layout& layout) : state_(owned) {
  const std::size_t each = layout.owned.size();
  expects(state_.pieces.size() == arena_count * each, "every family has the pieces of the layout");
  for (std::size_t i = 0; i < state_.pieces.size(); ++i) {
    const DType type = state_.tensors[state_.pieces[i].tensor].type;
    offsets_.push_back(layout.owned[i % each].offset * bytes_of(type));
  }
}

const checkpoint::State& OwnedPieces::in(const StateArenas& arenas) {
  const std::array<std::byte*, arena_count> at = {reinterpret_cast<std::byte*>(arenas.parameters),
                                                  arenas.exp_avg, arenas.exp_avg_sq};
  const std::size_t each = state_.pieces.size() / arena_count;
  for (std::size_t i = 0; i < state_.pieces.size(); ++i) state_.pieces[i].data = at[i / each] + offsets_[i];
  return state_;
}

}  // namespace holdfast::train
