// One block per row, a pack of 16 bytes per thread at a time.
#include "src/cuda/kernels/add.hpp"

#include "src/base/error.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 256;

struct Terms {
  void* out;
  const void *a, *b;
  std::int64_t out_stride, a_stride, b_stride, cols;
};

template <class T, bool whole>
__global__ void __launch_bounds__(threads) add_kernel(Terms terms) {
  using P = Pack<T>;
  const std::int64_t row = blockIdx.x;
  const T* const a = static_cast<const T*>(terms.a) + row * terms.a_stride;
  const T* const b = static_cast<const T*>(terms.b) + row * terms.b_stride;
  T* const out = static_cast<T*>(terms.out) + row * terms.out_stride;
  for (std::int64_t i = std::int64_t{threadIdx.x} * P::size; i < terms.cols; i += threads * P::size) {
    const P x = P::template load<whole>(a + i, terms.cols - i),
            y = P::template load<whole>(b + i, terms.cols - i);
    float sum[P::size];
#pragma unroll
    for (int e = 0; e < P::size; ++e) sum[e] = x.at(e) + y.at(e);
    P::of(sum).template store<whole>(out + i, terms.cols - i);
  }
}

}  // namespace

void add(Runtime& runtime, StreamHandle stream, const Mat& out, const ConstMat& a, const ConstMat& b) {
  for (const ConstMat& m : {a, b})
    expects(m.rows == out.rows && m.cols == out.cols && m.type == out.type, "add: all matrices are alike");
  expects(out.rows < (std::int64_t{1} << 31), "add: rows are counted in 31 bits");
  if (out.rows == 0 || out.cols == 0) return;
  const Terms terms{out.data, a.data, b.data, out.stride, a.stride, b.stride, out.cols};
  const std::int64_t pack = 16 / bytes_of(out.type);
  const bool whole = whole_packs(out, pack) && whole_packs(a, pack) && whole_packs(b, pack);
  const auto grid = static_cast<unsigned>(out.rows);
  runtime.declare(stream, "add", {writes(out), reads(a), reads(b)});
  with_element(out.type, [&]<class T>() {
    if (whole)
      SIMT_LAUNCH((add_kernel<T, true>), grid, threads, stream, terms);
    else
      SIMT_LAUNCH((add_kernel<T, false>), grid, threads, stream, terms);
  });
}

}  // namespace holdfast::cuda
