#include "tests/cuda/sim/reference_gemm.hpp"

#include <fmt/core.h>

#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/cuda/gemm/product_plan.hpp"

namespace holdfast::cuda::sim {

namespace {
using kernels::Write;

/// Columns [first, first + count) of op(m), if `across`; else rows.
ConstMat part(const ConstMat& m, bool transposed, bool across, std::int64_t first, std::int64_t count) {
  return transposed == across ? m.rows_at(first, count) : m.cols_at(first, count);
}

void multiply(kernels::Kernels& kernels, const Product& p, int algorithm) {
  tensor::InlineStream stream;
  const Write write = p.add ? Write::add : Write::replace;
  if (is_fp8(p.a.type))
    return kernels.matmul_fp8(stream, p.y, p.a, p.b, p.inverse_a, p.inverse_b, write, p.bias);
  if (algorithm == ReferenceGemm::whole)
    return kernels.matmul(stream, p.y, p.a, p.transpose_a, p.b, p.transpose_b, write, p.bias);
  const std::int64_t k = p.transpose_a ? p.a.rows : p.a.cols, half = k / 2;
  const auto product = [&](const Mat& y) {
    kernels.matmul(stream, y, part(p.a, p.transpose_a, true, 0, half), p.transpose_a,
                   part(p.b, p.transpose_b, false, 0, half), p.transpose_b, Write::replace, p.bias);
    kernels.matmul(stream, y, part(p.a, p.transpose_a, true, half, k - half), p.transpose_a,
                   part(p.b, p.transpose_b, false, half, k - half), p.transpose_b, Write::add);
  };
  if (!p.add) return product(p.y);
  std::vector<float> whole(as_size(p.y.rows * p.y.cols));
  product(tensor::dense(whole.data(), p.y.rows, p.y.cols));
  for (std::int64_t r = 0; r < p.y.rows; ++r)
    for (std::int64_t c = 0; c < p.y.cols; ++c) p.y.row<float>(r)[c] += whole[as_size(r * p.y.cols + c)];
}

/// Sums in halves need fp32 between them and at least two terms.
bool may_halve(const Product& p) {
  return p.y.type == DType::fp32 && !is_fp8(p.a.type) && (p.transpose_a ? p.a.rows : p.a.cols) >= 2;
}

void append(std::vector<std::byte>& bytes, const void* data, std::size_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), first, first + size);
}
}  // namespace

ReferenceGemm::ReferenceGemm(SimRuntime& runtime, bool deterministic, std::uint64_t luck)
    : runtime_(runtime), deterministic_(deterministic), luck_(luck), kernels_(kernels::make_cpu_kernels(1)) {}

void ReferenceGemm::run(StreamHandle stream, const Product& product) {
  const ProductPlan plan = plan_product(product);
  if (is_empty(plan)) return run_empty(runtime_, stream, product);
  require_supported(plan, runtime_.facts());
  const std::string key = key_of(plan);
  int algorithm = whole;
  if (choices_ && may_halve(product)) {
    const auto chosen = choices_->entries.find(key);
    if (chosen != choices_->entries.end()) algorithm = chosen->second.algorithm;
  }
  std::vector<Access> accesses = {
      reads(product.a.data, extent_bytes(plan.b)),
      reads(product.b.data, extent_bytes(plan.a)),
      writes(product.y.data, extent_bytes(plan.d)),
  };
  if (product.bias)
    accesses.push_back(reads(product.bias.data, product.bias.cols * bytes_of(product.bias.type)));
  if (plan.fp8())
    accesses.push_back(reads(product.inverse_a, sizeof(float))),
        accesses.push_back(reads(product.inverse_b, sizeof(float)));
  std::vector<std::byte> arguments;
  append(arguments, key.data(), key.size());
  append(arguments, &algorithm, sizeof algorithm);
  runtime_.enqueue(
      stream, "product", accesses,
      [kernels = kernels_, product, algorithm] { multiply(*kernels, product, algorithm); }, arguments);
}

std::string ReferenceGemm::identity() const {
  return fmt::format("reference products 1, {}", deterministic_ ? "deterministic" : "free");
}

void ReferenceGemm::note(const Product& product) {
  const ProductPlan plan = plan_product(product);
  if (is_empty(plan)) return;
  require_supported(plan, runtime_.facts());
  noted_.insert(key_of(plan));
}

Choices ReferenceGemm::here() const {
  const GpuTraits& gpu = runtime_.facts();
  return {gpu.name,
          fmt::format("{}.{}", gpu.major, gpu.minor),
          gpu.multiprocessors,
          "reference products 1",
          deterministic_,
          {}};
}

std::string ReferenceGemm::choices(std::string_view known) {
  Choices choices = here();
  if (!known.empty()) {
    choices = parse_choices(known);
    require_same_place(choices, here());
  }
  for (const std::string& key : noted_) {
    if (choices.entries.contains(key)) continue;
    const std::uint64_t drawn = mix64(luck_ ^ hash_name(key.data(), key.size()));
    Algorithm found;
    found.algorithm = luck_ != 0 && drawn % 2 == 0 ? halves : whole;
    found.microseconds = static_cast<double>(drawn % 1000) / 10;
    choices.entries.emplace(key, found);
    ++searches_;
  }
  return choices.entries.empty() ? std::string() : print_choices(choices);
}

void ReferenceGemm::use_choices(std::string_view text) {
  std::optional<Choices> choices;
  if (!text.empty()) {
    choices = parse_choices(text);
    require_same_place(*choices, here());
  }
  choices_ = std::move(choices);
}

}  // namespace holdfast::cuda::sim
