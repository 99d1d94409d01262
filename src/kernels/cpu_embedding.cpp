// The embedding on the CPU: rows of a table, and the sums of their gradients.
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

constexpr std::int64_t column_strip = 64;  // columns of one task

template <class T>
HOLDFAST_VECTOR_WIDTHS void add_row(float* sum, const T* x, std::int64_t n) {
#pragma GCC ivdep  // they lie apart
  for (std::int64_t i = 0; i < n; ++i) sum[i] += to_float(x[i]);
}

}  // namespace

void CpuKernels::embed(Stream&, Mat out, ConstMat table, const std::int32_t* tokens) {
  expects(out.cols == table.cols && out.type == table.type, "embed: rows of the table");
  const auto bytes = as_size(out.cols * bytes_of(out.type));
  run_parts(out.rows, out.cols, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t t = first; t < end; ++t) {
      if (tokens[t] < 0)
        std::memset(out.rows_at(t, 1).data, 0, bytes);
      else
        std::memcpy(out.rows_at(t, 1).data, table.rows_at(tokens[t], 1).data, bytes);
    }
  });
}

void CpuKernels::embed_backward(Stream&, Mat d_table, ConstMat d_out, const std::int32_t* tokens,
                                Write write) {
  expects(d_table.cols == d_out.cols, "embed_backward: rows of the table");
  const std::int64_t d = d_table.cols;
  if (write == Write::replace)
    run_parts(d_table.rows, d, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t v = first; v < end; ++v)
        std::memset(d_table.row<float>(v), 0, as_size(d) * sizeof(float));
    });
  // A strip of columns per task: tokens that share a row of the table are added in their order, without
  // locks.
  with_type(d_out.type, [&]<class T>() {
    run_parts((d + column_strip - 1) / column_strip, column_strip * d_out.rows,
              [&](std::int64_t first, std::int64_t end) {
                const std::int64_t low = first * column_strip, high = std::min(d, end * column_strip);
                for (std::int64_t t = 0; t < d_out.rows; ++t)
                  if (tokens[t] >= 0)
                    add_row(d_table.row<float>(tokens[t]) + low, d_out.row<const T>(t) + low, high - low);
              });
  });
}

}  // namespace holdfast::kernels
