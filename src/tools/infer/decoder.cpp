// State plans its memory once: one matrix for each activation, shared by all blocks, with room for the
// largest pass. pass() computes all blocks for the newest tokens of some texts; a Part says which rows are
// whose. prefill() calls it for one text, a chunk at a time, and step() for one token of each text.
//
// Most operations are those of the trainer (run_forward()). Three are not: rope() turns each text by its own
// positions; attention() appends keys and values to the text's cache and attends to what is in it; and linear
// layers for single tokens are those of products.hpp. When all blocks are done, the texts grow by their rows.
// head() computes the logits behind the last row of each part.
//
// prefill() that is stopped has put only some chunks behind the text, which is why that is of no use any
// more.
#include "src/tools/infer/decoder.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/model/block.hpp"
#include "src/tensor/stream.hpp"
#include "src/tools/infer/cached_attention.hpp"
#include "src/tools/infer/products.hpp"
#include "src/tools/infer/threads.hpp"

namespace holdfast::infer {

using model::Activation;
using tensor::DType;

namespace {

/// Neighbouring rows of a pass that are one text's newest tokens.
struct Part {
  KvCache* text = nullptr;
  std::int64_t first = 0, rows = 0;
};

/// A planned matrix of the pass.
struct Place {
  tensor::Arena::Piece<std::byte> piece;
  DType type = DType::fp32;
  std::int64_t rows = 0, cols = 0;
};

}  // namespace

/// The matrices of a block are those of all blocks, and one residual grows from block to block.
struct Decoder::State final : model::Matrices {
  Parameters& weights;
  kernels::Kernels& kernels;
  const config::ModelShape& shape;
  const model::Options options;
  const int batch;
  const std::int64_t positions, max_rows;
  const model::Roles roles;
  tensor::InlineStream stream;
  tensor::Arena arena{"the decoder"};
  std::array<std::optional<Place>, config::activations> places;
  Place last, last_added;
  model::Layers layers;
  std::vector<std::vector<config::BlockOp>> ops;  // by layer
  std::vector<model::BlockWeights> blocks;        // by layer
  std::int64_t rows = 0;                          // of the running pass

  State(Parameters& w, kernels::Kernels& k, int max_texts, std::int64_t max_positions)
      : weights(w),
        kernels(k),
        shape(w.shape()),
        options(options_of(w.type())),
        batch(max_texts),
        positions(max_positions),
        max_rows(std::max<std::int64_t>(chunk, max_texts)),
        roles(w.shape()),
        layers{kernels, stream, shape, options, &weights, {}} {
    expects(!shape.adapters.any(), "a decoder's adapters are added to its weights");
    using enum Activation;
    plan(cosine, DType::fp32, positions, shape.rotary_size() / 2);
    plan(sine, DType::fp32, positions, shape.rotary_size() / 2);
    if (shape.window_rope_theta > 0)
      for (const Activation table : {window_cosine, window_sine})
        plan(table, DType::fp32, positions, shape.rotary_size() / 2);
    plan(output_rms, DType::fp32, 1, max_rows);
    plan(output, type(), batch, shape.width);
    for (const Activation what : {input, branch}) plan(what, type(), max_rows, shape.width);
    places[as_size(middle)] = places[as_size(input)];
    for (int layer = 0; layer < shape.layers; ++layer) {
      ops.push_back(config::block_ops(shape, layer));
      blocks.push_back(layers.block(layer, roles.blocks[as_size(layer)], false));
      for (const config::BlockOp& op : ops.back()) plan_for(op);
    }
    for (Place* of_texts : {&last, &last_added}) *of_texts = planned(type(), batch, shape.width);
    arena.commit();
    model::fill_rope_table(whole(cosine), whole(sine), shape, false);
    if (shape.window_rope_theta > 0)
      model::fill_rope_table(whole(window_cosine), whole(window_sine), shape, true);
  }

  static model::Options options_of(DType type) {
    model::Options out;
    out.activations = type;
    return out;
  }
  DType type() const { return options.activations; }

  Place planned(DType of, std::int64_t of_rows, std::int64_t cols) {
    return {arena.plan<std::byte>("decoder", of_rows * cols * tensor::bytes_of(of)), of, of_rows, cols};
  }
  void plan(Activation what, DType of, std::int64_t of_rows, std::int64_t cols) {
    if (auto& place = places[as_size(what)]; !place) place = planned(of, of_rows, cols);
  }
  void plan_for(const config::BlockOp& op) {
    for (const Activation what : {op.in, op.out}) plan(what, type(), max_rows, width_of(shape, what));
    if (op.numbers) plan(*op.numbers, DType::fp32, config::numbers_of(shape, *op.numbers), max_rows);
  }

  Mat first_rows(const Place& p, std::int64_t count) {
    return tensor::dense(arena.at(p.piece), p.type, count, p.cols);
  }
  Mat whole(Activation what) {
    const Place& p = places[as_size(what)].value();
    return first_rows(p, p.rows);
  }
  Mat at(Activation what) override {
    const Place& p = places[as_size(what)].value();
    return first_rows(p, std::min(rows, p.rows));
  }
  std::byte* workspace() override { return nullptr; }

  void rope(std::span<const Part> parts, const config::BlockOp& op);
  void attention(int layer, std::span<const Part> parts, const config::BlockOp& op);
  void pass(std::span<const std::int32_t> tokens, std::span<const Part> parts, bool prompt);
  void head(std::span<const Part> parts, Mat logits);
};

void Decoder::State::rope(std::span<const Part> parts, const config::BlockOp& op) {
  const Mat qkv = at(op.out), cosine = whole(model::cosine_of(shape, op)),
            sine = whole(model::sine_of(shape, op));
  for (const Part& part : parts) {
    const std::int64_t length = part.text->length();
    kernels.rope(stream, {qkv.rows_at(part.first, part.rows),
                          shape.heads,
                          shape.kv_heads,
                          shape.head_size(),
                          static_cast<int>(part.rows),
                          cosine.rows_at(length, part.rows),
                          sine.rows_at(length, part.rows),
                          {},
                          false});
  }
}

void Decoder::State::attention(int layer, std::span<const Part> parts, const config::BlockOp& op) {
  const Mat qkv = at(op.in), out = at(op.out);
  std::vector<CachedAttention> calls;
  for (const Part& part : parts) {
    const Mat own = qkv.rows_at(part.first, part.rows);
    part.text->append(layer, own.cols_at(shape.query_width(), 2 * shape.key_width()));
    calls.push_back({own, part.text->rows(layer, part.text->length() + part.rows),
                     out.rows_at(part.first, part.rows), shape.heads, shape.kv_heads, shape.head_size(),
                     static_cast<float>(shape.attention_multiplier), op.windowed ? shape.window : 0});
  }
  const std::int64_t tasks_of_row = shape.kv_heads;
  spread(rows * tasks_of_row, [&](std::int64_t task) {
    // Parts of one row each, or a single one.
    const std::int64_t row = task / tasks_of_row;
    const auto i = as_size(calls.size() == 1 ? 0 : row);
    attend(calls[i], task - parts[i].first * tasks_of_row);
  });
}

/// The operations of every block. Those in which tokens meet know of the tokens before; products of single
/// tokens are those of products.hpp.
void Decoder::State::pass(std::span<const std::int32_t> tokens, std::span<const Part> parts, bool prompt) {
  using Kind = config::BlockOp::Kind;
  rows = static_cast<std::int64_t>(tokens.size());
  layers.embed(at(Activation::input), layers.weight(roles.embedding), tokens.data());
  model::Entering entering{at(Activation::input), {}};
  for (int layer = 0; layer < shape.layers; ++layer) {
    const model::BlockWeights& w = blocks[as_size(layer)];
    for (const config::BlockOp& op : ops[as_size(layer)])
      if (op.kind == Kind::rope)
        rope(parts, op);
      else if (op.kind == Kind::attention)
        attention(layer, parts, op);
      else if (op.kind == Kind::linear && !prompt)
        multiply_rows(at(op.out), at(op.in), w.linear(op.role).weight, w.linear(op.role).bias);
      else
        model::run_forward(layers, op, *this, w, entering, nullptr, model::Pass::first);
    entering.added = at(Activation::branch);
  }
  for (const Part& part : parts) part.text->advance(part.rows);
}

/// Logits behind each part's last row.
void Decoder::State::head(std::span<const Part> parts, Mat logits) {
  const auto count = static_cast<std::int64_t>(parts.size());
  const Mat x = first_rows(last, count), added = first_rows(last_added, count),
            y = whole(Activation::output).rows_at(0, count);
  const auto bytes = x.cols * tensor::bytes_of(type());
  for (std::int64_t i = 0; i < count; ++i) {
    const Part& part = parts[i];
    const std::int64_t row = part.first + part.rows - 1;
    stream.copy(x.rows_at(i, 1).data, at(Activation::input).rows_at(row, 1).data, bytes);
    stream.copy(added.rows_at(i, 1).data, at(Activation::branch).rows_at(row, 1).data, bytes);
  }
  layers.norm(x, x, shape.layers == 0 ? ConstMat{} : ConstMat(added), y, floats(Activation::output_rms),
              layers.gain(roles.final_norm, false));
  layers.scale(y, layers.logit_factor());
  multiply_rows(logits, y, layers.weight(roles.head));
}

Decoder::Decoder(Parameters& weights, kernels::Kernels& kernels, int batch, std::int64_t positions)
    : state_(std::make_unique<State>(weights, kernels, batch, positions)) {}
Decoder::~Decoder() = default;

int Decoder::batch() const { return state_->batch; }
std::int64_t Decoder::positions() const { return state_->positions; }
KvCache Decoder::begin() const { return {state_->shape.layers, state_->shape.key_width(), state_->type()}; }

bool Decoder::prefill(KvCache& text, std::span<const std::int32_t> tokens, std::span<float> logits,
                      const std::function<bool()>& stopped) {
  expects(!tokens.empty(), "a text has a token");
  expects(text.length() + static_cast<std::int64_t>(tokens.size()) <= state_->positions,
          "a text has at most so many tokens");
  for (std::size_t first = 0; first < tokens.size(); first += chunk) {
    if (stopped && stopped()) return false;
    const auto part = tokens.subspan(first, std::min<std::size_t>(chunk, tokens.size() - first));
    const Part parts[] = {{&text, 0, static_cast<std::int64_t>(part.size())}};
    state_->pass(part, parts, true);
    if (first + part.size() == tokens.size())
      state_->head(parts, tensor::dense(logits.data(), 1, static_cast<std::int64_t>(logits.size())));
  }
  return true;
}

void Decoder::step(std::span<KvCache* const> texts, std::span<const std::int32_t> tokens,
                   tensor::Mat logits) {
  expects(texts.size() == tokens.size() && static_cast<int>(texts.size()) <= state_->batch,
          "a token for each text of the batch");
  std::vector<Part> parts;
  for (KvCache* text : texts) {
    expects(text->length() < state_->positions, "a text has at most so many tokens");
    parts.push_back({text, static_cast<std::int64_t>(parts.size()), 1});
  }
  state_->pass(tokens, parts, false);
  state_->head(parts, logits);
}

}  // namespace holdfast::infer
