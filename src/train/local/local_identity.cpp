#include "src/train/local/local_identity.hpp"

#include <fmt/format.h>

#include <iterator>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/config/compute_options.hpp"
#include "src/config/load.hpp"
#include "src/model/fp8_scaling.hpp"
#include "src/optim/best_loss.hpp"
#include "src/optim/guard.hpp"
#include "src/shard/layout.hpp"
#include "src/tensor/arena.hpp"
#include "src/train/state/state_views.hpp"

namespace holdfast::train {
namespace {

constexpr std::int64_t page = tensor::Arena::whole_alignment;

std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

std::uint64_t hash_text(const std::string& text) { return hash_name(text.data(), text.size()); }

/// Of all settings, those from which the bits of a step follow; the rest as if nobody had set it.
std::string deciding_settings(const config::RunConfig& config) {
  config::RunConfig out;
  out.train = config.train;
  out.train.activation_checkpointing = {};
  out.train.device = {};
  out.precision = config.precision;
  out.fp8 = config.fp8;
  out.optim = config.optim;
  out.guard = config.guard;
  out.model.weights = config.model.weights;
  out.lora = config.lora;
  return config::to_toml(out);
}

shard::Layout layout_of_rank(const LocalRun& run, int rank) {
  expects(rank >= 0 && (rank < run.mesh.world || !run.mesh.split_optimizer), "a rank of the run");
  shard::Mesh mesh = run.mesh;
  mesh.rank = kind_of(run, rank);
  return shard::layout_of(run.shape, mesh);
}

BufferShape buffer_shape_of(const shard::Layout& layout, DType moments) {
  BufferShape out;
  out.parameter_bytes = layout.arena_elements * bytes_of(DType::fp32);
  out.moment_bytes = layout.arena_elements * bytes_of(moments);
  out.exp_avg = round_up(out.parameter_bytes, page);
  out.exp_avg_sq = out.exp_avg + round_up(out.moment_bytes, tensor::Arena::alignment);
  out.bytes = out.exp_avg_sq + round_up(out.moment_bytes, tensor::Arena::alignment);
  return out;
}

/// The text of the largest record: all that detector and scaling can remember, and a digest per piece.
std::int64_t max_record_bytes(const config::RunConfig& config, const config::ModelShape& shape) {
  constexpr std::int64_t names_and_numbers = 1024, digest = 21;  // a number of 20 digits, and a comma
  const auto pieces = 3 * static_cast<std::int64_t>(config::tensors_of(shape).size());
  const std::int64_t detector =
                         2 * static_cast<std::int64_t>(sizeof(optim::GuardState) + sizeof(optim::BestLoss)),
                     scaling = std::int64_t{2} * config.fp8.history * shape.layers * model::fp8_roles;
  return names_and_numbers + pieces * digest + detector + scaling;
}

}  // namespace

LocalRun local_run_of(const config::RunConfig& config, const config::ModelShape& shape,
                      const shard::Mesh& mesh, const std::string& numerics, const std::string& data) {
  return {shape, mesh, config::type_of(config.precision.moments),
          hash_text(fmt::format("{}\n{}\n{}\n{}", config::to_toml(shape), numerics, data,
                                deciding_settings(config))),
          max_record_bytes(config, shape)};
}

int kind_of(const LocalRun& run, int rank) { return run.mesh.split_optimizer ? rank : rank % run.mesh.group; }

int kinds_of(const LocalRun& run) { return run.mesh.split_optimizer ? run.mesh.world : run.mesh.group; }

checkpoint::LocalIdentity local_identity_of(const LocalRun& run, int rank) {
  const shard::Layout layout = layout_of_rank(run, rank);
  const BufferShape buffer = buffer_shape_of(layout, run.moments);
  // Seals hold a hash of this text, so its words stay.
  std::string text = fmt::format("slot {} {} {}\n", buffer.exp_avg, buffer.exp_avg_sq, buffer.bytes);
  const auto to = std::back_inserter(text);
  for (const config::TensorSpec& tensor : config::tensors_of(run.shape))
    fmt::format_to(to, "{} {}x{}\n", tensor.name, tensor.rows, tensor.cols);
  for (const shard::Piece& piece : layout.held)
    fmt::format_to(to, "{} {} {} {}\n", piece.tensor, piece.first, piece.count, piece.offset);
  return {run.hash, hash_text(text), rank, run.mesh.world};
}

BufferShape buffer_shape_of(const LocalRun& run, int rank) {
  return buffer_shape_of(layout_of_rank(run, rank), run.moments);
}

checkpoint::State buffer_view_of(const LocalRun& run, int rank, std::byte* buffer) {
  const shard::Layout layout = layout_of_rank(run, rank);
  const BufferShape shape = buffer_shape_of(layout, run.moments);
  return held_of(run.shape, layout, reinterpret_cast<float*>(buffer), buffer + shape.exp_avg,
                 buffer + shape.exp_avg_sq, run.moments);
}

}  // namespace holdfast::train
