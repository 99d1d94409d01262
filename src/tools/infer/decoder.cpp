#include "src/tools/infer/decoder.hpp"

#include <algorithm>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/model/layers.hpp"
#include "src/tensor/stream.hpp"
#include "src/tools/infer/cached_attention.hpp"
#include "src/tools/infer/products.hpp"
#include "src/tools/infer/threads.hpp"

namespace holdfast::infer {

using kernels::Write;
using tensor::DType;

namespace {

/// Neighbouring rows of a pass that are one text's newest tokens.
struct Part {
  KvCache* text = nullptr;
  std::int64_t first = 0, rows = 0;
};

/// A planned matrix of the pass.
struct Buffer {
  tensor::Arena::Piece<std::byte> piece;
  DType type = DType::fp32;
  std::int64_t cols = 0;
};

}  // namespace

struct Decoder::State {
  Parameters& weights;
  kernels::Kernels& kernels;
  const config::ModelShape& shape;
  const DType type;
  const int batch;
  const std::int64_t positions, max_rows;
  const model::Roles roles;
  tensor::InlineStream stream;
  tensor::Arena arena{"the decoder"};
  Buffer cosine, sine, residual, normed, qkv, attended, branch, gate_up, activated, inverse_rms, last,
      last_added;

  State(Parameters& w, kernels::Kernels& k, int max_texts, std::int64_t max_positions)
      : weights(w),
        kernels(k),
        shape(w.shape()),
        type(w.type()),
        batch(max_texts),
        positions(max_positions),
        max_rows(std::max<std::int64_t>(chunk, max_texts)),
        roles(w.shape()) {
    expects(!shape.adapters.any(), "a decoder's adapters are added to its weights");
    const std::int64_t d = shape.width, f = shape.ffn, half = shape.head_size() / 2;
    const auto plan = [&](Buffer& b, DType of, std::int64_t rows, std::int64_t cols) {
      b = {arena.plan<std::byte>("decoder", rows * cols * tensor::bytes_of(of)), of, cols};
    };
    plan(cosine, DType::fp32, positions, half), plan(sine, DType::fp32, positions, half);
    for (Buffer* b : {&residual, &normed, &attended, &branch}) plan(*b, type, max_rows, d);
    plan(qkv, type, max_rows, d + 2 * kv_width());
    plan(gate_up, type, max_rows, 2 * f), plan(activated, type, max_rows, f);
    plan(inverse_rms, DType::fp32, 1, max_rows);
    for (Buffer* b : {&last, &last_added}) plan(*b, type, batch, d);
    arena.commit();
    kernels::rope_table(mat(cosine, positions), mat(sine, positions), shape.rope_theta,
                        model::rope_scaling_of(shape));
  }

  std::int64_t kv_width() const { return std::int64_t{shape.kv_heads} * shape.head_size(); }
  Mat mat(const Buffer& b, std::int64_t rows) {
    return tensor::dense(arena.at(b.piece), b.type, rows, b.cols);
  }
  ConstMat weight(model::Stored t) {
    if (t.index < 0) return {};
    return tensor::dense(weights.weight(t.index), type, t.rows, t.cols);
  }

  void product(Mat y, ConstMat x, model::Stored w, model::Stored bias, bool prompt);
  void norm(Mat out, Mat sum, ConstMat added, model::Stored gain);
  void attention(int layer, std::span<const Part> parts, std::int64_t rows);
  void pass(std::span<const std::int32_t> tokens, std::span<const Part> parts, bool prompt);
  void head(std::span<const Part> parts, std::int64_t rows, Mat logits);
};

void Decoder::State::product(Mat y, ConstMat x, model::Stored w, model::Stored bias, bool prompt) {
  if (prompt)
    kernels.matmul(stream, y, x, false, weight(w), true, Write::replace, weight(bias));
  else
    multiply_rows(y, x, weight(w), weight(bias));
}

/// sum += added, if anything is; out = RMSNorm(sum).
void Decoder::State::norm(Mat out, Mat sum, ConstMat added, model::Stored gain) {
  kernels::Norm n;
  n.residual = sum;
  n.branch = added;
  n.sum = sum;
  n.out = out;
  n.gain = weight(gain);
  n.inverse_rms = mat(inverse_rms, 1).row<float>(0);
  n.epsilon = static_cast<float>(shape.norm_epsilon);
  kernels.norm(stream, n);
}

void Decoder::State::attention(int layer, std::span<const Part> parts, std::int64_t rows) {
  const std::int64_t d = shape.width;
  const Mat packed = mat(qkv, rows), out = mat(attended, rows);
  std::vector<CachedAttention> calls;
  for (const Part& part : parts) {
    const Mat own = packed.rows_at(part.first, part.rows);
    const std::int64_t length = part.text->length();
    kernels.rope(stream, {own,
                          shape.heads,
                          shape.kv_heads,
                          shape.head_size(),
                          static_cast<int>(part.rows),
                          mat(cosine, positions).rows_at(length, part.rows),
                          mat(sine, positions).rows_at(length, part.rows),
                          {},
                          false});
    part.text->append(layer, own.cols_at(d, 2 * kv_width()));
    calls.push_back({own, part.text->rows(layer, length + part.rows), out.rows_at(part.first, part.rows),
                     shape.heads, shape.kv_heads, shape.head_size()});
  }
  const std::int64_t tasks_of_row = shape.kv_heads;
  spread(rows * tasks_of_row, [&](std::int64_t task) {
    // Parts of one row each, or a single one.
    const std::int64_t row = task / tasks_of_row;
    const auto i = as_size(calls.size() == 1 ? 0 : row);
    attend(calls[i], task - parts[i].first * tasks_of_row);
  });
}

void Decoder::State::pass(std::span<const std::int32_t> tokens, std::span<const Part> parts, bool prompt) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const Mat x = mat(residual, rows), y = mat(normed, rows), added = mat(branch, rows);
  kernels.embed(stream, x, weight(roles.embedding), tokens.data());
  for (int layer = 0; layer < shape.layers; ++layer) {
    const model::Block& block = roles.blocks[layer];
    norm(y, x, layer == 0 ? ConstMat{} : ConstMat(added), block.attention_norm);
    product(mat(qkv, rows), y, block.qkv, block.qkv_bias, prompt);
    attention(layer, parts, rows);
    product(added, mat(attended, rows), block.o, {}, prompt);
    norm(y, x, added, block.mlp_norm);
    product(mat(gate_up, rows), y, block.gate_up, {}, prompt);
    kernels.swiglu(stream, mat(activated, rows), mat(gate_up, rows));
    product(added, mat(activated, rows), block.down, {}, prompt);
  }
  for (const Part& part : parts) part.text->advance(part.rows);
}

/// Logits behind each part's last row.
void Decoder::State::head(std::span<const Part> parts, std::int64_t rows, Mat logits) {
  const auto count = static_cast<std::int64_t>(parts.size());
  const Mat x = mat(last, count), added = mat(last_added, count), y = mat(normed, count);
  const auto bytes = x.cols * tensor::bytes_of(type);
  for (std::int64_t i = 0; i < count; ++i) {
    const Part& part = parts[i];
    const std::int64_t row = part.first + part.rows - 1;
    stream.copy(x.rows_at(i, 1).data, mat(residual, rows).rows_at(row, 1).data, bytes);
    stream.copy(added.rows_at(i, 1).data, mat(branch, rows).rows_at(row, 1).data, bytes);
  }
  norm(y, x, shape.layers == 0 ? ConstMat{} : ConstMat(added), roles.final_norm);
  multiply_rows(logits, y, weight(roles.head));
}

Decoder::Decoder(Parameters& weights, kernels::Kernels& kernels, int batch, std::int64_t positions)
    : state_(std::make_unique<State>(weights, kernels, batch, positions)) {}
Decoder::~Decoder() = default;

int Decoder::batch() const { return state_->batch; }
std::int64_t Decoder::positions() const { return state_->positions; }
KvCache Decoder::begin() const { return {state_->shape.layers, state_->kv_width(), state_->type}; }

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
      state_->head(parts, parts[0].rows,
                   tensor::dense(logits.data(), 1, static_cast<std::int64_t>(logits.size())));
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
  state_->head(parts, static_cast<std::int64_t>(tokens.size()), logits);
}

}  // namespace holdfast::infer
