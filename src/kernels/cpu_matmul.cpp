// Matrix products on the CPU. OpenBLAS splits the sum over k by the number of its threads for some shapes, so
// it is called single-threaded on fixed tiles of the result, and the tiles are spread over our threads.
#include <cblas.h>
#include <fmt/core.h>

#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {
/// "OpenBLAS 0.3.21", the first words of its description.
std::string openblas_version() {
  const std::string text = openblas_get_config();
  return text.substr(0, text.find(' ', text.find(' ') + 1));
}

constexpr std::int64_t tile = 256;  // rows and columns of the result per call: part of the numerics identity
}  // namespace

#ifdef __SANITIZE_THREAD__
constexpr int most_threads = 1;  // the sanitizer does not see how OpenMP's runtime orders its threads
#else
constexpr int most_threads = 1024;
#endif

CpuKernels::CpuKernels(int threads)
    : threads_(std::min(most_threads, threads > 0 ? threads : omp_get_max_threads())) {
  // Other builds than the OpenMP one have threads of their own, which SerialBlas does not reach.
  if (openblas_get_parallel() != OPENBLAS_OPENMP) openblas_set_num_threads(1);
  tiles_.resize(static_cast<std::size_t>(threads_) * tile * tile);
}

std::string CpuKernels::identity() const {
  return fmt::format("cpu fp32 1, {} on {}, tile {}, head chunk {}, lanes {}", openblas_version(),
                     openblas_get_corename(), tile, head_chunk, sum_lanes);
}

std::unique_ptr<Kernels> make_cpu_kernels(int threads) { return std::make_unique<CpuKernels>(threads); }

void CpuKernels::matmul(Stream&, Mat y, ConstMat a, bool transpose_a, ConstMat b, bool transpose_b,
                        Write write) {
  const std::int64_t k = transpose_a ? a.rows : a.cols;
  expects((transpose_a ? a.cols : a.rows) == y.rows && (transpose_b ? b.rows : b.cols) == y.cols,
          "matmul: the result's shape");
  expects((transpose_b ? b.cols : b.rows) == k, "matmul: inner sizes agree");
  const std::int64_t tile_rows = (y.rows + tile - 1) / tile, tile_cols = (y.cols + tile - 1) / tile;
  run_tasks(tile_rows * tile_cols, [&](std::int64_t task, int thread) {
    const std::int64_t i = task / tile_cols * tile, j = task % tile_cols * tile;
    const std::int64_t rows = std::min(tile, y.rows - i), cols = std::min(tile, y.cols - j);
    float* scratch = tiles_.data() + thread * tile * tile;
    const Mat out =
        write == Write::add ? tensor::dense(scratch, rows, cols) : y.rows_at(i, rows).cols_at(j, cols);
    const float* left = transpose_a ? a.data + i : a.row(i);
    const float* right = transpose_b ? b.row(j) : b.data + j;
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(rows),
                static_cast<blasint>(cols), static_cast<blasint>(k), 1.0f, left,
                static_cast<blasint>(a.stride), right, static_cast<blasint>(b.stride), 0.0f, out.data,
                static_cast<blasint>(out.stride));
    if (write == Write::add)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) y.row(i + r)[j + c] += out.row(r)[c];
  });
}

}  // namespace holdfast::kernels
