// What happens to gradients on the CPU: ordered sums, rounding for the wire, exact norms, AdamW.
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/kernels/cpu.hpp"
#include "src/kernels/cpu_math.hpp"
#include "src/kernels/exact_squares.hpp"

namespace holdfast::kernels {

namespace {

constexpr std::int64_t resident =
    2048;  // elements of a sum that stay in the L1 cache while all terms stream past
constexpr std::int64_t in_place_start =
    16384;  // elements converted in place by one thread, before the others join

template <class T>
HOLDFAST_VECTOR_WIDTHS void add_to(float* sum, const T* x, std::int64_t n) {
#pragma GCC ivdep  // they lie apart
  for (std::int64_t i = 0; i < n; ++i) sum[i] += to_float(x[i]);
}

/// May write over `in` from its beginning when To is the narrower one: element i lies before what is read
/// later.
template <class To, class From>
HOLDFAST_VECTOR_WIDTHS void convert_part(To* out, const From* in, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = rounded<To>(to_float(in[i]));
}

template <class Moment>
HOLDFAST_VECTOR_WIDTHS void adamw_part(const AdamW& a, const StepScalars& scalars, std::int64_t first,
                                       std::int64_t end) {
  const StepScalars s = scalars;
  const float *parameter = a.parameter, *gradient = a.gradient;
  const auto *old_m = static_cast<const Moment*>(a.m), *old_v = static_cast<const Moment*>(a.v);
  float* new_parameter = a.new_parameter;
  auto *new_m = static_cast<Moment*>(a.new_m), *new_v = static_cast<Moment*>(a.new_v);
#pragma GCC ivdep  // old and new are the same or apart
  for (std::int64_t i = first; i < end; ++i) {
    const float g = s.gradient_scale * gradient[i];
    const float m = s.beta1 * to_float(old_m[i]) + s.one_minus_beta1 * g;
    const float v = s.beta2 * to_float(old_v[i]) + s.one_minus_beta2 * (g * g);
    float p = parameter[i];
    p = p - s.lr_decay * p;
    p = p - s.lr * ((m * s.inverse_bias1) / (std::sqrt(v * s.inverse_bias2) + s.epsilon));
    new_m[i] = rounded<Moment>(m);
    new_v[i] = rounded<Moment>(v);
    new_parameter[i] = p;
  }
}

template <class T>
HOLDFAST_VECTOR_WIDTHS std::uint64_t count_not_finite(const T* x, std::int64_t n) {
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  constexpr Word exponent = exponent_bits<Word>;
  std::uint64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += (std::bit_cast<Word>(x[i]) & exponent) == exponent ? 1 : 0;
  return count;
}

}  // namespace

void CpuKernels::convert(Stream&, void* out, DType to, const void* in, DType from, std::int64_t count) {
  if (to == from) {
    if (out == in) return;
    const std::int64_t size = bytes_of(to);
    run_parts(count, 1, [&](std::int64_t low, std::int64_t end) {
      std::memcpy(static_cast<std::byte*>(out) + low * size, static_cast<const std::byte*>(in) + low * size,
                  (end - low) * size);
    });
    return;
  }
  expects(out != in || bytes_of(to) < bytes_of(from), "convert: in place only to the narrower type");
  with_type(to, [&]<class To>() {
    with_type(from, [&]<class From>() {
      auto piece = [&](std::int64_t first, std::int64_t end) {
        run_parts(end - first, 1, [&](std::int64_t low, std::int64_t high) {
          convert_part(static_cast<To*>(out) + first + low, static_cast<const From*>(in) + first + low,
                       high - low);
        });
      };
      if (out != in) return piece(0, count);
      // In place: the results of [n, 2n) lie where [n / 2, n) was read before, so threads can share them.
      std::int64_t done = std::min<std::int64_t>(count, in_place_start);
      convert_part(static_cast<To*>(out), static_cast<const From*>(in), done);
      for (; done < count; done = std::min(count, 2 * done)) piece(done, std::min(count, 2 * done));
    });
  });
}

void CpuKernels::reduce(Stream&, float* sum, std::span<const void* const> terms, DType type,
                        std::int64_t count, bool first) {
  with_type(type, [&]<class T>() {
    run_parts(count, static_cast<std::int64_t>(terms.size()), [&](std::int64_t low, std::int64_t end) {
      for (std::int64_t at = low; at < end; at += resident) {
        const std::int64_t n = std::min(resident, end - at);
        for (std::size_t term = 0; term < terms.size(); ++term) {
          const T* x = static_cast<const T*>(terms[term]) + at;
          if (first && term == 0)
            convert_part(sum + at, x, n);
          else
            add_to(sum + at, x, n);
        }
      }
    });
  });
}

void CpuKernels::sum_squares(Stream&, const float* x, std::int64_t count, ExactSum* sum) {
  run_parts(count, 1, [&](std::int64_t low, std::int64_t end) {
    ExactSum part;
    add_squares(&part, x + low, end - low);
#pragma omp critical(holdfast_sum_squares)
    sum->add(part);
  });
}

void CpuKernels::digest(Stream&, const void* x, DType type, std::int64_t first, std::int64_t count,
                        DigestSums* sums) {
  with_type(type, [&]<class T>() {
    const T* const elements = static_cast<const T*>(x);
    run_parts(count, 1, [&](std::int64_t low, std::int64_t end) {
      const std::uint64_t sum =
          digest_part(static_cast<std::uint64_t>(first + low), elements + low, type, end - low);
      const std::uint64_t wrong = count_not_finite(elements + low, end - low);
#pragma omp atomic
      sums->digest += sum;
#pragma omp atomic
      sums->not_finite += wrong;
    });
  });
}

void CpuKernels::adamw(Stream&, const AdamW& a, const StepScalars& s) {
  with_type(a.moments, [&]<class Moment>() {
    run_parts(a.count, 4, [&](std::int64_t low, std::int64_t end) { adamw_part<Moment>(a, s, low, end); });
  });
}

}  // namespace holdfast::kernels
