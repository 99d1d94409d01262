#include "src/tools/infer/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/data/samples.hpp"
#include "src/model/transformer.hpp"

namespace holdfast::infer {

namespace {

/// Windows of a file as a run's evaluation draws them, a micro-batch at a time; the last one is filled up
/// with what does not count.
class Rows {
 public:
  Rows(const data::TokenFile& file, const Evaluation& e)
      : file_(file), e_(e), windows_(data::windows_of(file, e.sequence)) {
    const auto n = as_size(e.micro_batch) * as_size(e.sequence);
    for (auto* part : {&inputs_, &labels_, &document_start_}) part->resize(n);
  }

  model::Batch read(std::int64_t first, std::int64_t end) {
    for (int r = 0; r < e_.micro_batch; ++r) {
      const data::Row to = row(r);
      if (first + r < end) {
        data::read_window(file_, data::held_out_window(first + r, windows_) * e_.sequence, e_.boundaries, to);
        continue;
      }
      for (const auto part : {to.inputs, to.document_start}) std::ranges::fill(part, 0);
      std::ranges::fill(to.labels, -1);
    }
    if (e_.boundaries && file_.documents() > 1) return {inputs_, labels_, document_start_, 0};
    return {inputs_, labels_, {}, 0};
  }

 private:
  data::Row row(int number) {
    const auto n = as_size(e_.sequence), at = as_size(number) * n;
    const auto part = [&](std::vector<std::int32_t>& all) { return std::span(all).subspan(at, n); };
    return {part(inputs_), part(labels_), part(document_start_)};
  }

  const data::TokenFile& file_;
  const Evaluation& e_;
  std::int64_t windows_;
  std::vector<std::int32_t> inputs_, labels_, document_start_;
};

}  // namespace

Loss evaluate(Parameters& weights, kernels::Kernels& kernels, const data::TokenFile& file,
              const Evaluation& e, const std::function<void(std::int64_t, std::int64_t)>& done) {
  const config::ModelShape& shape = weights.shape();
  if (file.vocabulary() > shape.vocabulary)
    throw Error(Exit::usage,
                fmt::format("the token file's vocabulary is {}, and the model's {}", file.vocabulary(),
                            shape.vocabulary),
                "", "Make the file with this model's tokenizer?");
  Loss loss;
  loss.samples = data::windows_of(file, e.sequence);
  if (e.samples > 0) loss.samples = std::min(loss.samples, e.samples);

  model::Options options;
  options.micro_batch = e.micro_batch;
  options.sequence = e.sequence;
  options.activations = weights.type();
  options.buffers = e.buffers;
  options.activation_checkpointing =
      config::ActivationCheckpointing::full;  // keeps the least, and changes no bit
  tensor::InlineStream stream;
  tensor::Arena arena("activations");
  model::Transformer transformer(shape, options, kernels, stream, arena);
  arena.commit();
  transformer.take_loss();
  Rows rows(file, e);
  for (std::int64_t first = 0; first < loss.samples; first += e.micro_batch) {
    transformer.evaluate(weights, rows.read(first, loss.samples));
    if (done) done(std::min(first + e.micro_batch, loss.samples), loss.samples);
  }
  const model::LossSum sum = transformer.take_loss();
  if (sum.valid == 0)
    throw Error(Exit::usage, "nothing in these samples counts", "all their tokens are masked");
  loss.mean = sum.mean();
  loss.tokens = sum.valid;
  return loss;
}

}  // namespace holdfast::infer
