#include "src/tools/cli/eval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
#include "src/config/compute_options.hpp"
#include "src/tools/cli/ckpt_paths.hpp"
#include "src/tools/cli/interrupt.hpp"
#include "src/tools/cli/run_settings.hpp"
#include "src/tools/infer/evaluate.hpp"

namespace holdfast::tool {

namespace {

constexpr int usual_sequence = 2048;  // where nothing says how long samples are

/// What is asked for; else what the run did; else what the file and the model are like.
infer::Evaluation evaluation_of(const EvalOrder& order, const std::optional<config::RunConfig>& run,
                                const data::TokenFile& file, const config::ModelShape& shape) {
  infer::Evaluation e;
  e.sequence = order.sequence > 0 ? order.sequence
               : file.row() > 0   ? static_cast<int>(file.row())
               : run              ? run->train.sequence
                                  : std::min(usual_sequence, shape.max_sequence);
  if (e.sequence > shape.max_sequence)
    throw Error(Exit::usage, fmt::format("samples of {} tokens are too long", e.sequence),
                fmt::format("the model's longest sequence is {}", shape.max_sequence), "Set --sequence?");
  e.samples = order.samples;
  if (run) {
    e.micro_batch = run->train.micro_batch;
    e.boundaries = run->data.boundaries;
    e.buffers = type_of(run->precision.buffers);
  }
  if (order.micro_batch > 0) e.micro_batch = order.micro_batch;
  return e;
}

void print(const EvalOrder& order, const fs::path& path, const infer::Evaluation& e, const std::string& dtype,
           const infer::Loss& loss, std::ostream& out) {
  const double perplexity = std::exp(loss.mean);
  if (!order.json) {
    out << fmt::format(
        "loss        {:.6f}\nperplexity  {:.6g}\ntokens      {}\nsamples     {} of {} tokens ({})\n",
        loss.mean, perplexity, loss.tokens, loss.samples, e.sequence, dtype);
    return;
  }
  nlohmann::ordered_json json = {{"schema_version", 1},    {"path", path.string()},
                                 {"loss", loss.mean},      {"perplexity", perplexity},
                                 {"tokens", loss.tokens},  {"samples", loss.samples},
                                 {"sequence", e.sequence}, {"dtype", dtype}};
  out << json_text(json, 2) << '\n';
}

}  // namespace

int evaluate(const EvalOrder& order, std::ostream& out) {
  const data::TokenFile file = data::TokenFile::open(order.tokens, 2);
  auto files = weights::MergedFiles::open(order.model.path, order.model.adapters, order.model.base);
  const fs::path& path = path_of(files, order.model);
  const auto run = run_config_of(path);
  const std::string dtype = !order.dtype.empty()                                          ? order.dtype
                            : run && run->precision.parameters != config::Precision::fp32 ? "bf16"
                                                                                          : "fp32";
  const infer::Evaluation e = evaluation_of(order, run, file, files.shape());
  note_interrupts();
  infer::Parameters parameters = load_apart(files, dtype_of(dtype));
  const auto kernels = kernels::make_cpu_kernels();
  const infer::Loss loss = infer::evaluate(parameters, *kernels, file, e, bar("evaluating"));
  print(order, path, e, dtype, loss, out);
  return static_cast<int>(Exit::done);
}

}  // namespace holdfast::tool
