// Published runs of other trainers, put through the functions by which `holdfast plan` foresees a step.
// Blind: no constant of launcher/foresee comes from a training run, and what is said of a trainer here (its
// kernels for attention, its types on the wire, its bytes) follows from its sources and settings, not from
// its speed. published_runs.csv names each row's source. The test prints the table, and fails where it
// becomes worse than docs/foresee.md says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "launcher/foresee/step_time.hpp"
#include "src/config/load.hpp"

namespace holdfast::launcher {
namespace {

using Row = std::map<std::string, std::string>;

/// Fields of a line; quoted ones may have commas.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

std::vector<Row> published_runs() {
  std::ifstream file(HOLDFAST_SOURCE_DIR "/tests/launcher/foresee/published_runs.csv");
  std::string line;
  std::getline(file, line);
  const auto names = fields_of(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const auto fields = fields_of(line);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = fields.at(i);
  }
  return rows;
}

/// MPT's block has the same products and bytes as a Llama's whose SwiGLU is 8/3 of the width: two products of
/// 4 d instead of three.
config::ModelShape mpt(int width, int layers) {
  config::ModelShape m;
  m.vocabulary = 50368;
  m.width = width;
  m.layers = layers;
  m.heads = m.kv_heads = width / 128;
  m.ffn = width * 8 / 3;
  m.tied_embeddings = true;
  return m;
}

config::ModelShape shape_of(const std::string& name) {
  if (name == "mpt-760m") return mpt(1536, 24);
  if (name == "mpt-1b") return mpt(2048, 24);
  if (name == "mpt-3b") return mpt(2560, 32);
  if (name == "mpt-7b") return mpt(4096, 32);
  if (name == "mpt-13b") return mpt(5120, 40);
  if (name == "mpt-30b") return mpt(7168, 48);
  if (name == "mpt-70b") return mpt(8192, 80);
  return config::load_model(name);
}

/// PyTorch's own FlashAttention-2 reaches 300 TFLOP/s where the kernel's figure has 370 (pytorch/benchmark,
/// pull request 2296, an H100).
constexpr double pytorch_attention_slower = 370.0 / 300;

/// Under a power limit clocks fall with its cube root: dynamic power is f V^2, and voltage follows frequency.
GpuKind limited(GpuKind gpu, double watts) {
  const double share = std::cbrt(watts / gpu.watts);
  gpu.bf16_flops *= share;
  gpu.fp8_flops *= share;
  gpu.watts = watts;
  return gpu;
}

bool data_parallel(const Row& row) {
  return row.at("tp") == "1" && row.at("pp") == "1" && row.at("cp") == "1";
}

StepFacts facts_of(const Row& row) {
  const std::string &source = row.at("src"), &hardware = row.at("hw"), &strategy = row.at("strategy");
  const auto from = [&](const char* word) { return source.find(word) != std::string::npos; };
  const auto number = [&](const char* name) { return std::stoi(row.at(name)); };
  const int gpus = number("gpus");
  StepFacts f;
  f.gpu = *gpu_kind_called(hardware == "H200" ? "h200" : "h100");
  f.adapter_bytes_s = 50e9;  // 400 Gbit/s
  f.ranks_per_node = 8;
  f.model = shape_of(row.at("model"));
  f.sequence = number("seq");
  f.micro_batch = number("mbs");
  f.micro_steps = std::max(1, number("gbs") / (gpus * f.micro_batch));
  f.group = gpus;
  f.fp8 = row.at("prec") == "fp8";
  f.trainer.attention = Attention::cudnn;
  f.trainer.optimizer_bytes = 38;
  f.trainer.loss_bytes = 12;  // logits in fp32: read, and a gradient read and written
  const std::string& ac = row.at("ac");
  if (ac == "full") f.recomputed = {1, 1, 1};

  if (from("maxtext")) {
    f.group = std::min(gpus, strategy == "FSDP256" ? 256 : 128);
    f.replicas = gpus / f.group;
    f.reduced_bytes = f.summed_bytes = 2;
    const double qkv = static_cast<double>(f.model.query_width() + 2 * f.model.key_width()) * f.model.width,
                 rest = static_cast<double>(f.model.query_width() + 2 * f.model.ffn) * f.model.width;
    f.recomputed = {rest / (qkv + rest), 1, 1};
  } else if (from("Megatron-Bridge")) {
    f.reduced_bytes = 2;
  } else if (from("NeMo")) {  // data parallel with a distributed optimizer
    f.group = 1;
    f.replicas = gpus;
    f.split_optimizer = true;
    f.gathers = 0;
    f.summed_bytes = 2;
    if (strategy.find("LoRA") != std::string::npos) {
      f.model.adapters.rank = 32;
      for (const auto p : {config::Projection::q, config::Projection::k, config::Projection::v})
        f.model.adapters.on[static_cast<int>(p)] = true;
    }
  } else if (from("torchtitan")) {
    if (hardware != "H200") {
      f.gpu = limited(f.gpu, 500);
      f.gpu.memory_bytes_s = 2.4e12;
    }
    f.trainer.attention = Attention::flash2;
    f.trainer.attention_slower = pytorch_attention_slower;
    f.trainer.loss_bytes = 28;    // not compiled: each of its operations reads and writes all logits
    f.trainer.copied_bytes = 14;  // out of two gathers, and into a reduce-scatter
    if (strategy == "FSDP eager") f.trainer.pointwise = 3.3;  // operations of RMSNorm, SwiGLU, rope counted
    if (f.fp8) f.gathered_bytes = 1;
    f.recomputed = {0.5, 0, 1};  // every second product
  } else if (from("fms-fsdp")) {
    f.trainer.attention = Attention::flash2;
    f.trainer.attention_slower = pytorch_attention_slower;
    f.adapter_bytes_s = 800e9 / 8 / 8;
    f.reduced_bytes = f.summed_bytes = 2;
    f.trainer.copied_bytes = 4;
    if (strategy == "HSDP") {
      f.group = 8;
      f.replicas = gpus / f.group;
    }
    if (ac == "selective") f.recomputed = {0.5, 0.5, 0.5};
  } else if (from("llm-foundry")) {
    // Its scripts submit the jobs with PyTorch 2.0 on CUDA 11.8 (a later image stands there as a comment),
    // whose cuBLAS reaches 720 TFLOP/s (PyTorch's issue 100850) where later ones reach 797; and with
    // attention in Triton, 1.3 to 2.5 times slower than FlashAttention-2 (its paper, section 4).
    const double older = 720.0 / 797;
    f.gpu.bf16_flops *= older;
    f.trainer.attention = Attention::flash2;
    f.trainer.attention_slower = older * (1.3 + 2.5) / 2;
    f.trainer.optimizer_bytes = 110;  // AdamW as nine operations
    f.trainer.copied_bytes = 10;
    if (strategy == "SHARD_GRAD_OP") f.gathers = 1;
  }
  return f;
}

struct Result {
  std::string source;
  double error = 0;     ///< of tokens/s, over those measured
  bool within = false;  ///< the measured speed lies between the slow and the fast end
};

Result foreseen(const Row& row) {
  const StepFacts f = facts_of(row);
  const auto speed = [&](const Rates& rates) {
    return f.tokens() * f.micro_steps / step_time(f, rates).total();
  };
  const double measured = std::stod(row.at("tok_s_gpu")), typical = speed(typical_rates()),
               fast = speed(fast_rates()), slow = speed(slow_rates());
  const Result result{row.at("src").substr(0, row.at("src").find_first_of("@:")), typical / measured - 1,
                      slow <= measured && measured <= fast};
  fmt::print(
      "{:>3} {:<34.34} {:<10} {:>4} {:<4} {:>5} {:<13.13} {:<9.9} {:>7.0f} {:>7.0f} {:>+6.1f} % {:>7.0f} to "
      "{:.0f}{}\n",
      row.at("id"), result.source, row.at("model"), row.at("gpus"), row.at("prec"), row.at("seq"),
      row.at("strategy"), row.at("ac"), measured, typical, 100 * result.error, slow, fast,
      result.within ? "" : "  outside");
  return result;
}

/// Sizes of errors.
struct Errors {
  std::size_t rows = 0;
  double mean = 0, median = 0, p90 = 0, worst = 0;  ///< but for the mean, of sizes
};
Errors errors_of(const std::vector<Result>& results) {
  Errors out;
  out.rows = results.size();
  std::vector<double> sizes;
  for (const Result& result : results) {
    out.mean += result.error / static_cast<double>(results.size());
    sizes.push_back(std::abs(result.error));
  }
  std::sort(sizes.begin(), sizes.end());
  const auto at = [&](double part) {
    return sizes[static_cast<int>(part * static_cast<double>(sizes.size() - 1))];
  };
  out.median = at(0.5);
  out.p90 = at(0.9);
  out.worst = sizes.back();
  return out;
}

TEST(PublishedRuns, are_foreseen_as_well_as_the_documents_say) {
  fmt::print(
      "row, source, model, GPUs, type, sequence, layout, recomputed; tokens/s a GPU: measured, foreseen, "
      "error, "
      "slow to fast end\n");
  std::vector<Result> all;
  std::map<std::string, std::vector<Result>> by_source;
  int others = 0, within = 0;
  for (const Row& row : published_runs()) {
    if (!data_parallel(row)) {
      ++others;
      continue;
    }
    all.push_back(foreseen(row));
    by_source[all.back().source].push_back(all.back());
    within += all.back().within ? 1 : 0;
  }
  for (const auto& [source, results] : by_source) {
    const Errors e = errors_of(results);
    fmt::print("{:<34} {:>2} rows, mean {:+.1f} %, median {:.1f} %, worst {:.1f} %\n", source, e.rows,
               100 * e.mean, 100 * e.median, 100 * e.worst);
  }
  const Errors e = errors_of(all);
  fmt::print(
      "RESULT {{\"rows\": {}, \"not_modelled\": {}, \"mean\": {:.3f}, \"median\": {:.3f}, \"p90\": {:.3f}, "
      "\"worst\": {:.3f}, \"within_ends\": {}}}\n",
      e.rows, others, e.mean, e.median, e.p90, e.worst, within);
  // docs/foresee.md. What was aimed at: 5, 10 and 20 %.
  EXPECT_LE(e.median, 0.08);
  EXPECT_LE(e.p90, 0.16);
  EXPECT_LE(e.worst, 0.30);
}

}  // namespace
}  // namespace holdfast::launcher
