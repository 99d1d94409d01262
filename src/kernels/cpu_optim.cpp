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
    1024;                    // elements of sums that stay in the cache while all terms stream past
constexpr int deepest = 32;  // sums of a stack: a counter of 2^31 lanes has no more
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

void CpuKernels::add_up(Stream&, const OrderedSum& s) {
  expects(s.terms.size() == s.additions.size(), "add_up: an addition for every term");
  with_type(s.type, [&]<class T>() {
    run_parts(s.count, static_cast<std::int64_t>(s.terms.size()), [&](std::int64_t low, std::int64_t end) {
      alignas(64) float sums[deepest][resident];
      for (std::int64_t at = low; at < end; at += resident) {
        const std::int64_t n = std::min(resident, end - at),
                           bytes = n * static_cast<std::int64_t>(sizeof(float));
        int top = s.before - 1,
            here = s.before;  // sums [here, top] are in `sums`, those below in their places
        const auto fetch = [&](int number) {
          if (number >= here) return;
          std::memcpy(sums[number], s.sums[as_size(number)] + at, bytes);
          here = number;
        };
        for (std::size_t i = 0; i < s.terms.size(); ++i) {
          const T* const term = static_cast<const T*>(s.terms[i]) + at;
          if (s.additions[i].begins) {
            ++top;
            expects(top < deepest, "add_up: a stack of so many sums");
            convert_part(sums[top], term, n);
          } else {
            fetch(top);
            add_to(sums[top], term, n);
          }
          for (int m = 0; m < s.additions[i].merges; ++m) {
            fetch(--top);
            add_to(sums[top], sums[top + 1], n);
          }
        }
        for (int number = here; number <= top; ++number)
          std::memcpy((number == 0 && s.result != nullptr ? s.result : s.sums[as_size(number)]) + at,
                      sums[number], bytes);
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
