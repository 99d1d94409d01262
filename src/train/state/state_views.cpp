#include "src/train/state/state_views.hpp"

#include <algorithm>
#include <array>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

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

/// Where the families lie, and as what.
struct Arenas {
  std::array<std::byte*, families> at;
  std::array<DType, families> types;
};

std::vector<checkpoint::LogicalTensor> logical_tensors(const std::vector<config::TensorSpec>& specs,
                                                       const Arenas& arenas) {
  std::vector<checkpoint::LogicalTensor> out;
  for (std::size_t family = 0; family < family_names.size(); ++family)
    for (const auto& spec : specs)
      out.push_back({family_names[family] + spec.name, spec.rows, spec.cols, arenas.types[family]});
  return out;
}

std::vector<checkpoint::PieceView> views_in(const std::vector<shard::Piece>& pieces, int tensors,
                                            const Arenas& arenas) {
  std::vector<checkpoint::PieceView> out;
  for_each(pieces, tensors, [&](int tensor, const shard::Piece& piece, int family) {
    const auto at = as_size(family);
    out.push_back(
        {tensor, piece.first, piece.count, arenas.at[at] + piece.offset * bytes_of(arenas.types[at])});
  });
  return out;
}

/// What every rank writes: each family is cut as the arenas are.
checkpoint::WriterLayout writers_of(const config::ModelShape& shape, const shard::Layout& layout) {
  checkpoint::WriterLayout out{layout.mesh.group, layout.mesh.replicas, {}};
  const auto stored = config::stored_tensors_of(shape);
  for (int family = 0; family < families; ++family)
    for (std::size_t i = 0; i < stored.size(); ++i)
      if (!stored[i].frozen)
        out.cuts.push_back({stored[i].parts, layout.slices[i].stride, layout.slices[i].part});
  return out;
}
}  // namespace

checkpoint::State held_of(const config::ModelShape& shape, const shard::Layout& layout, float* parameters,
                          std::byte* exp_avg, std::byte* exp_avg_sq, DType moments) {
  const auto specs = config::tensors_of(shape);
  const Arenas arenas{{reinterpret_cast<std::byte*>(parameters), exp_avg, exp_avg_sq},
                      {DType::fp32, moments, moments}};
  return {logical_tensors(specs, arenas), views_in(layout.held, static_cast<int>(specs.size()), arenas)};
}

void move_views(StateViews& views, const shard::Layout& layout, float* parameters, std::byte* exp_avg,
                std::byte* exp_avg_sq, DType moments) {
  const Arenas arenas{{reinterpret_cast<std::byte*>(parameters), exp_avg, exp_avg_sq},
                      {DType::fp32, moments, moments}};
  const auto move = [&](checkpoint::State& state, const std::vector<shard::Piece>& pieces) {
    auto view = state.pieces.begin();
    for_each(pieces, 0, [&](int, const shard::Piece& piece, int family) {
      const auto at = as_size(family);
      (view++)->data = arenas.at[at] + piece.offset * bytes_of(arenas.types[at]);
    });
    expects(view == state.pieces.end(), "views of the same layout");
  };
  move(views.held, layout.held);
  move(views.owned, layout.owned);
}

StateViews views_of(const config::ModelShape& shape, const shard::Layout& layout, float* parameters,
                    std::byte* exp_avg, std::byte* exp_avg_sq, DType moments) {
  const int tensors = static_cast<int>(config::tensors_of(shape).size());
  const Arenas arenas{{reinterpret_cast<std::byte*>(parameters), exp_avg, exp_avg_sq},
                      {DType::fp32, moments, moments}};
  StateViews out;
  out.held = held_of(shape, layout, parameters, exp_avg, exp_avg_sq, moments);
  out.owned = {out.held.tensors, views_in(layout.owned, tensors, arenas)};
  out.writers = writers_of(shape, layout);
  const auto spans = checkpoint::spans_of(out.owned.tensors, out.writers, layout.mesh.rank);
  expects(std::equal(spans.begin(), spans.end(), out.owned.pieces.begin(), out.owned.pieces.end(),
                     [](const auto& span, const auto& piece) { return span == piece.span(); }),
          "a rank writes what it owns");
  return out;
}

}  // namespace holdfast::train
