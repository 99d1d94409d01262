// Rotary positions on the CPU.
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"

namespace holdfast::kernels {

namespace {

/// Pairs (a, b) of every head of `size` turned by the angles whose cosines and sines are given.
template <class T, class Table>
HOLDFAST_VECTOR_WIDTHS void rotate(T* x, const Table* cosine, const Table* sine, std::int64_t half,
                                   std::int64_t heads, std::int64_t size, float direction) {
  for (std::int64_t h = 0; h < heads; ++h) {
    T *a = x + h * size, *b = a + half;
#pragma GCC ivdep  // a and b lie apart
    for (std::int64_t i = 0; i < half; ++i) {
      const float p = to_float(a[i]), q = to_float(b[i]);
      const float c = to_float(cosine[i]), s = direction * to_float(sine[i]);
      a[i] = rounded<T>(p * c - q * s);
      b[i] = rounded<T>(q * c + p * s);
    }
  }
}

}  // namespace

void CpuKernels::rope(Stream&, const Rope& r) {
  const std::int64_t half = r.cosine.cols, heads = r.heads + r.kv_heads;
  expects(2 * half <= r.head_size, "rope: a head has all the pairs of the table");
  expects(r.cosine.rows >= r.sequence, "rope: the table holds every position");
  const float direction = r.backward ? -1.0f : 1.0f;
  with_type(r.qkv.type, [&]<class T>() {
    with_type(r.cosine.type, [&]<class Table>() {
      run_parts(r.qkv.rows, heads * r.head_size, [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t t = first; t < end; ++t) {
          const std::int64_t position =
              t % r.sequence - (r.documents.start == nullptr ? 0 : r.documents.start[t]);
          rotate(r.qkv.row<T>(t), r.cosine.row<const Table>(position), r.sine.row<const Table>(position),
                 half, heads, r.head_size, direction);
        }
      });
    });
  });
}

}  // namespace holdfast::kernels
