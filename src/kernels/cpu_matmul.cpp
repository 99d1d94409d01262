// Matrix products on the CPU. bf16: own kernels, see bf16_matmul.hpp. fp32: OpenBLAS splits the sum over k by
// the number of its threads for some shapes, so it is called single-threaded on fixed tiles of the result,
// and the tiles are spread over our threads.
#include <cblas.h>
#include <fmt/core.h>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/kernels/bf16_matmul.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_attention.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {
/// "OpenBLAS 0.3.21", the first words of its description.
std::string openblas_version() {
  const std::string text = openblas_get_config();
  return text.substr(0, text.find(' ', text.find(' ') + 1));
}

constexpr std::int64_t tile = 256;  // rows and columns of the result per call: part of the numerics identity

/// y (+)= product + bias, one row of a tile.
HOLDFAST_VECTOR_WIDTHS void finish_row(float* y, const float* product, const float* bias, bool add,
                                       std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) {
    const float sum = bias == nullptr ? product[c] : product[c] + bias[c];
    y[c] = add ? y[c] + sum : sum;
  }
}
}  // namespace

#ifdef __SANITIZE_THREAD__
constexpr int max_threads = 1;  // the sanitizer does not see how OpenMP's runtime orders its threads
#else
constexpr int max_threads = 1024;
#endif

CpuKernels::CpuKernels(int threads, const Bf16Blocks& blocks)
    : threads_(std::min(max_threads, threads > 0 ? threads : omp_get_max_threads())),
      blocks_(blocks),
      bf16_scratch_(threads_) {
  // Other builds than the OpenMP one have threads of their own, which SerialBlas does not reach.
  if (openblas_get_parallel() != OPENBLAS_OPENMP) openblas_set_num_threads(1);
  tiles_.resize(as_size(threads_) * tile * tile);
  largest_.resize(threads_);
}

std::string CpuKernels::identity(DType type) const {
  const std::string products = type == DType::bf16 ? bf16_identity(blocks_)
                                                   : fmt::format("{} on {}, tile {}", openblas_version(),
                                                                 openblas_get_corename(), tile);
  return fmt::format("cpu {} 1, {}, {}, head chunk {}, lanes {}", name_of(type), products,
                     attention_identity(type), head_chunk, sum_lanes);
}

std::unique_ptr<Kernels> make_cpu_kernels(int threads) { return make_cpu_kernels(threads, bf16_blocks()); }
std::unique_ptr<Kernels> make_cpu_kernels(int threads, const Bf16Blocks& blocks) {
  return std::make_unique<CpuKernels>(threads, blocks);
}

void CpuKernels::matmul(Stream&, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b,
                        Write write, ConstMat bias) {
  expects((transpose_a ? a.cols : a.rows) == y.rows && (transpose_b ? b.rows : b.cols) == y.cols,
          "matmul: the result's shape");
  expects((transpose_b ? b.cols : b.rows) == (transpose_a ? a.rows : a.cols), "matmul: inner sizes agree");
  expects(!bias || (bias.rows == 1 && bias.cols == y.cols), "matmul: a bias is one row");
  expects(a.type == b.type && (!bias || bias.type == a.type), "matmul: operands are of one type");
  expects(y.type == DType::fp32 || (y.type == a.type && write == Write::replace),
          "matmul: the result is fp32, or of the operands' type and replaced");
  if (a.type == DType::bf16)
    matmul_bf16(y, a, transpose_a, b, transpose_b, write, bias);
  else
    matmul_fp32(y, a, transpose_a, b, transpose_b, write, bias);
}

void CpuKernels::matmul_bf16(Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, Write write,
                             ConstMat bias) {
  const Bf16Matmul product(blocks_, bf16_scratch_, threads_, y, a, transpose_a, b, transpose_b, write, bias);
  for (std::int64_t step = 0; step < product.steps(); ++step) {
    run_tasks(product.pack_tasks(step), [&](std::int64_t task, int) { product.pack(step, task); });
    run_tasks(product.multiply_tasks(step),
              [&](std::int64_t task, int thread) { product.multiply(step, task, thread); });
  }
}

void CpuKernels::matmul_fp32(Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b, Write write,
                             ConstMat bias) {
  const std::int64_t k = transpose_a ? a.rows : a.cols;
  const std::int64_t tile_rows = (y.rows + tile - 1) / tile, tile_cols = (y.cols + tile - 1) / tile;
  run_tasks(tile_rows * tile_cols, [&](std::int64_t task, int thread) {
    const std::int64_t i = task / tile_cols * tile, j = task % tile_cols * tile;
    const std::int64_t rows = std::min(tile, y.rows - i), cols = std::min(tile, y.cols - j);
    float* scratch = tiles_.data() + thread * tile * tile;
    const Mat out =
        write == Write::add ? tensor::dense(scratch, rows, cols) : y.rows_at(i, rows).cols_at(j, cols);
    const float* left = transpose_a ? a.row<const float>(0) + i : a.row<const float>(i);
    const float* right = transpose_b ? b.row<const float>(j) : b.row<const float>(0) + j;
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(rows),
                static_cast<blasint>(cols), static_cast<blasint>(k), 1.0f, left,
                static_cast<blasint>(a.stride), right, static_cast<blasint>(b.stride), 0.0f,
                out.row<float>(0), static_cast<blasint>(out.stride));
    if (write == Write::add || bias)
      for (std::int64_t r = 0; r < rows; ++r)
        finish_row(y.row<float>(i + r) + j, out.row<float>(r), bias ? bias.row<const float>(0) + j : nullptr,
                   write == Write::add, cols);
  });
}

}  // namespace holdfast::kernels
