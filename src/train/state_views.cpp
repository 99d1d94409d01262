#include "src/train/state_views.hpp"

#include <array>

namespace holdfast::train {
namespace {
constexpr std::array family_names = {"model/", "optim/exp_avg/", "optim/exp_avg_sq/"};
constexpr int families = static_cast<int>(family_names.size());

/// `visit(tensor, piece, family)` in the order in which a rank writes.
template <class Visit>
void for_each(const std::vector<shard::Piece>& pieces, int tensors, Visit visit) {
  for (int family = 0; family < families; ++family)
    for (const shard::Piece& piece : pieces) visit(family * tensors + piece.tensor, piece, family);
}
}  // namespace

StateViews views_of(const config::ModelShape& shape, const shard::Layout& layout, float* parameters,
                    float* exp_avg, float* exp_avg_sq) {
  const auto specs = config::tensors_of(shape);
  const int tensors = static_cast<int>(specs.size());
  const std::array arenas = {parameters, exp_avg, exp_avg_sq};
  StateViews out;
  for (const char* family : family_names)
    for (const auto& spec : specs) out.held.tensors.push_back({family + spec.name, spec.rows, spec.cols});
  out.owned.tensors = out.held.tensors;
  auto append = [&](checkpoint::State& to) {
    return [&](int tensor, const shard::Piece& piece, int family) {
      to.pieces.push_back(
          {tensor, piece.first, piece.count, arenas[static_cast<std::size_t>(family)] + piece.offset});
    };
  };
  for_each(layout.held, tensors, append(out.held));
  for_each(layout.owned, tensors, append(out.owned));
  for (int rank = 0; rank < layout.mesh.world; ++rank) {
    shard::Mesh mesh = layout.mesh;
    mesh.rank = rank;
    auto& spans = out.writers.of_rank.emplace_back();
    for_each(shard::layout_of(shape, mesh).owned, tensors, [&](int tensor, const shard::Piece& piece, int) {
      spans.push_back({tensor, piece.first, piece.count});
    });
  }
  return out;
}

}  // namespace holdfast::train
