#include "src/cuda/kernels/adamw.hpp"

#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

using kernels::AdamW;
using kernels::StepScalars;

constexpr int threads = 256;
constexpr int pack = 4;  ///< elements per thread

/// Elements [at, at + left), at most a pack. New values may go where the old ones are: a thread reads its own
/// first.
template <class Moment, bool whole>
HOLDFAST_DEVICE void update(const AdamW& a, const StepScalars& s, std::int64_t at, std::int64_t left) {
  using Moments = Pack<Moment, pack>;
  const auto parameter = Pack<float>::load<whole>(a.parameter + at, left);
  const auto gradient = Pack<float>::load<whole>(a.gradient + at, left);
  const auto old_m = Moments::template load<whole>(static_cast<const Moment*>(a.m) + at, left);
  const auto old_v = Moments::template load<whole>(static_cast<const Moment*>(a.v) + at, left);
  float new_p[pack], new_m[pack], new_v[pack];
#pragma unroll
  for (int i = 0; i < pack; ++i) {
    // Nothing is contracted (-fmad=false); division and root are IEEE's: the bits of the CPU's formula.
    const float g = s.gradient_scale * gradient.at(i);
    const float m = s.beta1 * old_m.at(i) + s.one_minus_beta1 * g;
    const float v = s.beta2 * old_v.at(i) + s.one_minus_beta2 * (g * g);
    float p = parameter.at(i);
    p = p - s.lr_decay * p;
    p = p - s.lr * __fdiv_rn(m * s.inverse_bias1, __fsqrt_rn(v * s.inverse_bias2) + s.epsilon);
    new_p[i] = p;
    new_m[i] = m;
    new_v[i] = v;
  }
  Pack<float>::of(new_p).store<whole>(a.new_parameter + at, left);
  Moments::of(new_m).template store<whole>(static_cast<Moment*>(a.new_m) + at, left);
  Moments::of(new_v).template store<whole>(static_cast<Moment*>(a.new_v) + at, left);
}

template <class Moment>
__global__ void __launch_bounds__(threads) adamw_kernel(AdamW a, StepScalars s, bool aligned) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * pack;
  const std::int64_t left = a.count - at;
  if (left <= 0) return;
  if (aligned && left >= pack)
    update<Moment, true>(a, s, at, left);
  else
    update<Moment, false>(a, s, at, left);
}

bool is_aligned(const void* address, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0;
}

}  // namespace

void adamw(Runtime& runtime, StreamHandle stream, const AdamW& a, const StepScalars& scalars) {
  expects(a.count >= 0, "adamw: a number of elements");
  if (a.count == 0) return;
  const std::int64_t bytes = a.count * 4, moment_bytes = a.count * bytes_of(a.moments);
  bool aligned = true;
  for (const void* x : {static_cast<const void*>(a.parameter), static_cast<const void*>(a.gradient),
                        static_cast<const void*>(a.new_parameter)})
    aligned = aligned && is_aligned(x, 16);
  for (const void* x : {a.m, a.v, static_cast<const void*>(a.new_m), static_cast<const void*>(a.new_v)})
    aligned = aligned && is_aligned(x, pack * bytes_of(a.moments));
  const std::int64_t blocks = (a.count + threads * pack - 1) / (threads * pack);
  expects(blocks < std::int64_t{1} << 31, "adamw: blocks are counted in 31 bits");
  runtime.declare(stream, "adamw",
                  {reads(a.parameter, bytes), reads(a.gradient, bytes), reads(a.m, moment_bytes),
                   reads(a.v, moment_bytes), writes(a.new_parameter, bytes), writes(a.new_m, moment_bytes),
                   writes(a.new_v, moment_bytes)});
  with_element(a.moments, [&]<class Moment>() {
    SIMT_LAUNCH(adamw_kernel<Moment>, static_cast<unsigned>(blocks), threads, stream, a, scalars, aligned);
  });
}

}  // namespace holdfast::cuda
