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
                    std::byte* exp_avg, std::byte* exp_avg_sq, DType moments) {
  const auto specs = config::tensors_of(shape);
  const int tensors = static_cast<int>(specs.size());
  const std::array arenas = {reinterpret_cast<std::byte*>(parameters), exp_avg, exp_avg_sq};
  const std::array types = {DType::fp32, moments, moments};
  StateViews out;
  for (std::size_t family = 0; family < family_names.size(); ++family)
    for (const auto& spec : specs)
      out.held.tensors.push_back({family_names[family] + spec.name, spec.rows, spec.cols, types[family]});
  out.owned.tensors = out.held.tensors;
  auto append = [&](checkpoint::State& to) {
    return [&](int tensor, const shard::Piece& piece, int family) {
      const auto at = static_cast<std::size_t>(family);
      to.pieces.push_back(
          {tensor, piece.first, piece.count, arenas[at] + piece.offset * bytes_of(types[at])});
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
