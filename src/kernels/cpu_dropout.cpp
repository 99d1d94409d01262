// Dropout, and plain scaling, on the CPU.
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"
#include "src/tensor/philox.hpp"

namespace holdfast::kernels {

namespace {

template <class To, class From>
HOLDFAST_VECTOR_WIDTHS void scale_row(To* out, const From* in, float factor, bool add, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = to_float(in[i]) * factor;
    out[i] = rounded<To>(add ? to_float(out[i]) + x : x);
  }
}

template <class To, class From>
void drop_row(To* out, const From* in, const Dropout& d, std::uint32_t place, std::uint64_t sample,
              std::int64_t n) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  for (std::int64_t i = 0; i < n; i += 4) {
    const auto words = tensor::philox({static_cast<std::uint32_t>(i / 4), place, low(sample), high(sample)},
                                      {low(d.key), high(d.key)});
    for (std::int64_t k = i; k < std::min(n, i + 4); ++k) {
      const bool stays = words[k - i] >= d.threshold;
      const float x = stays ? to_float(in[k]) * d.factor : 0.0f;
      out[k] = rounded<To>(d.write == Write::add ? to_float(out[k]) + x : x);
    }
  }
}

}  // namespace

void CpuKernels::dropout(Stream&, const Dropout& d) {
  expects(d.out.rows == d.in.rows && d.out.cols == d.in.cols, "dropout: out is as large as in");
  expects(d.write == Write::replace || d.out.type == DType::fp32, "dropout: sums are fp32");
  const std::int64_t n = d.in.cols;
  with_type(d.out.type, [&]<class To>() {
    with_type(d.in.type, [&]<class From>() {
      run_parts(d.in.rows, d.threshold == 0 ? n : 16 * n, [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t t = first; t < end; ++t) {
          To* const out = d.out.row<To>(t);
          const From* const in = d.in.row<const From>(t);
          if (d.threshold == 0) {
            scale_row(out, in, d.factor, d.write == Write::add, n);
            continue;
          }
          const std::int64_t token = d.first_token + t;
          drop_row(out, in, d, static_cast<std::uint32_t>(token % d.sequence),
                   static_cast<std::uint64_t>(*d.first_sample + token / d.sequence), n);
        }
      });
    });
  });
}

}  // namespace holdfast::kernels
