#include "src/cuda/gemm/product_plan.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "src/base/error.hpp"

namespace holdfast::cuda {

namespace {
constexpr std::uintptr_t max_alignment = 16;

int alignment_of(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<int>(value == 0 ? max_alignment : std::min(max_alignment, value & -value));
}

PlanMatrix by_columns(const ConstMat& matrix) {
  return {matrix.type, matrix.cols, matrix.rows, matrix.stride, alignment_of(matrix.data)};
}

void check(const Product& p) {
  expects(
      (p.transpose_a ? p.a.cols : p.a.rows) == p.y.rows && (p.transpose_b ? p.b.rows : p.b.cols) == p.y.cols,
      "product: the result's shape");
  expects((p.transpose_b ? p.b.cols : p.b.rows) == (p.transpose_a ? p.a.rows : p.a.cols),
          "product: inner sizes agree");
  for (const ConstMat& m : {ConstMat(p.y), p.a, p.b})
    expects(m.stride >= m.cols, "product: rows do not overlap");
  expects(!p.bias || (p.bias.rows == 1 && p.bias.cols == p.y.cols), "product: a bias is one row");
  expects(!p.add || p.y.type == DType::fp32, "product: only fp32 is added to");
  if (is_fp8(p.a.type) || is_fp8(p.b.type)) {
    expects(is_fp8(p.a.type) && is_fp8(p.b.type), "product: both operands have 8 bits, or none");
    expects(!(p.a.type == DType::e5m2 && p.b.type == DType::e5m2), "product: not both operands are e5m2");
    expects(!p.transpose_a && p.transpose_b, "product: 8-bit operands lie along k");
    for (const float* inverse : {p.inverse_a, p.inverse_b})
      expects(inverse != nullptr && alignment_of(inverse) == max_alignment,
              "product: 8-bit operands have scales, on boundaries of 16 bytes");
    expects(!is_fp8(p.y.type), "product: a result has 16 or 32 bits");
    // The library's table of types: bf16 also where the result is fp32.
    expects(!p.bias || p.bias.type == DType::bf16, "product: the bias of an 8-bit product is bf16");
    return;
  }
  expects(p.a.type == p.b.type, "product: operands are of one type");
  expects(p.y.type == DType::fp32 || p.y.type == p.a.type,
          "product: the result is fp32, or of the operands' type");
  // The library's table of types: 16-bit products take a bias of the result's type.
  expects(!p.bias || (p.bias.type == p.a.type && p.bias.type == p.y.type),
          "product: a bias is of the result's and the operands' type");
}
}  // namespace

ProductPlan plan_product(const Product& product) {
  check(product);
  ProductPlan plan;
  plan.a = by_columns(product.b);
  plan.b = by_columns(product.a);
  plan.d = by_columns(product.y);
  plan.transpose_a = product.transpose_b;
  plan.transpose_b = product.transpose_a;
  plan.add = product.add;
  if (product.bias) {
    plan.bias = true;
    plan.bias_type = product.bias.type;
    plan.bias_alignment = alignment_of(product.bias.data);
  }
  return plan;
}

ProductPointers pointers_of(const Product& product) {
  return {product.b.data,    product.a.data,    product.y.data,
          product.bias.data, product.inverse_b, product.inverse_a};
}

std::string key_of(const ProductPlan& plan) {
  // In our order: the operand a is the library's B.
  std::string key =
      fmt::format("{}x{}x{} {}*{}->{} {}{} ld {},{},{} align {},{},{}", plan.d.cols, plan.d.rows,
                  plan.inner(), name_of(plan.b.type), name_of(plan.a.type), name_of(plan.d.type),
                  plan.transpose_b ? 't' : 'n', plan.transpose_a ? 't' : 'n', plan.b.leading, plan.a.leading,
                  plan.d.leading, plan.b.alignment, plan.a.alignment, plan.d.alignment);
  if (plan.bias) key += fmt::format(" bias {} align {}", name_of(plan.bias_type), plan.bias_alignment);
  return key;
}

std::string describe(const ProductPlan& plan) {
  const auto operand = [](const PlanMatrix& m, bool transposed) {
    return fmt::format("{} x {}, {}{}", m.cols, m.rows, name_of(m.type), transposed ? ", transposed" : "");
  };
  return fmt::format("y ({}) {} a ({}) * b ({}){}", operand(plan.d, false), plan.add ? "+=" : "=",
                     operand(plan.b, plan.transpose_b), operand(plan.a, plan.transpose_a),
                     plan.bias ? " + bias" : "");
}

void require_supported(const ProductPlan& plan, const GpuTraits& gpu) {
  if (!plan.fp8()) return;
  if (gpu.major * 10 + gpu.minor < 89)
    throw Error(
        Exit::usage, "this GPU has no 8-bit products",
        fmt::format("{} has compute capability {}.{}, and 8.9 is needed", gpu.name, gpu.major, gpu.minor),
        "Set precision.products = \"bf16\"?");
  const auto ragged = [](const PlanMatrix& m) {
    return m.rows * bytes_of(m.type) % 16 != 0 || m.leading * bytes_of(m.type) % 16 != 0 || m.alignment < 16;
  };
  // A transposed operand has k along its columns in memory; its other size is D's number of rows.
  if (ragged(plan.a) || ragged(plan.b) || ragged(plan.d) || plan.d.rows % 16 != 0)
    throw Error(
        Exit::usage, "a product of 8-bit matrices has a shape that the GPU's tensor cores do not take",
        fmt::format("{}; sizes along a row must be multiples of 16", describe(plan)),
        "Choose a model width, inner size and head count that are multiples of 16, or precision.products = "
        "\"bf16\"?");
}

bool is_empty(const ProductPlan& plan) { return plan.d.rows == 0 || plan.d.cols == 0 || plan.inner() == 0; }

void run_empty(Runtime& runtime, StreamHandle stream, const Product& product) {
  expects(!(product.add && product.bias) && (!product.bias || product.bias.type == product.y.type),
          "product: of nothing, only a bias of the result's type is left");
  const std::int64_t bytes = product.y.cols * bytes_of(product.y.type);
  if (product.add || bytes == 0) return;
  for (std::int64_t r = 0; r < product.y.rows; ++r) {
    std::byte* row = product.y.rows_at(r, 1).data;
    if (product.bias)
      runtime.copy(stream, row, product.bias.data, bytes);
    else
      runtime.zero(stream, row, bytes);
  }
}

std::int64_t extent_bytes(const PlanMatrix& matrix) {
  if (matrix.rows == 0 || matrix.cols == 0) return 0;
  return ((matrix.cols - 1) * matrix.leading + matrix.rows) * bytes_of(matrix.type);
}

}  // namespace holdfast::cuda
