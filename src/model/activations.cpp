#include "src/model/activations.hpp"

#include <fmt/core.h>

#include "src/base/error.hpp"

namespace holdfast::model {

Activations::Activations(const config::ModelShape& shape, const Options& options,
                         std::int64_t attention_workspace, tensor::Arena& arena)
    : arena_(arena), width_(shape.width), attended_width_(width_of(shape, Activation::attended)) {
  expects(options.micro_batch > 0 && options.sequence > 0, "a micro-batch has rows and tokens");
  for (const config::ActivationRow& row : config::activation_rows(shape, options)) {
    Place& to = places_[as_size(row.what)];
    to = {{}, row.type, row.rows, row.cols, row.every_block};
    for (int i = 0; i < (row.every_block ? shape.layers : 1); ++i)
      to.pieces.push_back(arena.plan<std::byte>(
          row.every_block ? fmt::format("block {} {}", i, row.name) : row.name, row.bytes()));
  }
  workspace_ = arena.plan<std::byte>("attention workspace", attention_workspace);
  loss_ = arena.plan<tensor::ExactSum>("loss", options.sources);
  valid_ = arena.plan<std::int64_t>("valid labels", options.sources);
  if (shape.adapters.dropout > 0) first_sample_ = arena.plan<std::int64_t>("first sample", 1);
}

tensor::Mat Activations::mat(Activation what, int layer) {
  const Place& p = place(what);
  const auto piece = p.pieces.at(as_size(p.every_block ? layer : 0));
  const std::int64_t cols = what == Activation::branch ? width_ : p.cols;
  return tensor::dense(arena_.at(piece), p.type, p.rows, cols);
}

tensor::Mat Activations::d_attended() {
  const Place& p = place(Activation::branch);
  return tensor::dense(arena_.at(p.pieces[0]), p.type, p.rows, attended_width_);
}

}  // namespace holdfast::model
