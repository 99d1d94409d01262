#include "src/cuda/kernels/ordered_reduce.hpp"

#include <algorithm>
#include <utility>

#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 256;
constexpr int max_terms = 32;  ///< of one launch; more are added by further ones, in order

struct Terms {
  const void* at[max_terms];
};

/// Elements [at, at + left), at most a pack of 16 bytes of T.
template <class T, bool whole>
HOLDFAST_DEVICE void add(float* sum, const Terms& terms, int count, bool first, std::int64_t at,
                         std::int64_t left) {
  using In = Pack<T>;
  using Out = Pack<float, In::size>;
  float x[In::size];
  int next = 0;
  if (first) {
    const auto term = In::template load<whole>(static_cast<const T*>(terms.at[0]) + at, left);
#pragma unroll
    for (int i = 0; i < In::size; ++i) x[i] = term.at(i);
    next = 1;
  } else {
    const auto old = Out::template load<whole>(sum + at, left);
#pragma unroll
    for (int i = 0; i < In::size; ++i) x[i] = old.at(i);
  }
#pragma unroll 4
  for (; next < count; ++next) {
    const auto term = In::template load<whole>(static_cast<const T*>(terms.at[next]) + at, left);
#pragma unroll
    for (int i = 0; i < In::size; ++i) x[i] += term.at(i);
  }
  Out::of(x).template store<whole>(sum + at, left);
}

template <class T>
__global__ void __launch_bounds__(threads)
    ordered_reduce_kernel(float* sum, const Terms terms, int count, std::int64_t elements, bool first,
                          bool aligned) {
  constexpr int pack = Pack<T>::size;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * pack;
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  if (aligned && left >= pack)
    add<T, true>(sum, terms, count, first, at, left);
  else
    add<T, false>(sum, terms, count, first, at, left);
}

void declare_ordered_reduce(Runtime& runtime, StreamHandle stream, const Access& sum, const Terms& terms,
                            std::size_t count, std::int64_t term_bytes) {
  const auto all = [&]<std::size_t... i>(std::index_sequence<i...>) {
    runtime.declare(stream, "ordered_reduce", {sum, reads(terms.at[i], i < count ? term_bytes : 0)...});
  };
  all(std::make_index_sequence<max_terms>());
}

}  // namespace

void ordered_reduce(Runtime& runtime, StreamHandle stream, float* sum, std::span<const void* const> terms,
                    kernels::DType type, std::int64_t count, bool first) {
  expects(count >= 0, "ordered_reduce: a number of elements");
  if (count == 0) return;
  with_element(type, [&]<class T>() {
    const std::int64_t per_block = threads * Pack<T>::size, blocks = (count + per_block - 1) / per_block;
    expects(blocks < std::int64_t{1} << 31, "ordered_reduce: blocks are counted in 31 bits");
    for (std::size_t at = 0; at < terms.size(); at += max_terms) {
      Terms part{};
      const std::size_t n = std::min<std::size_t>(max_terms, terms.size() - at);
      std::copy_n(terms.data() + at, n, part.at);
      bool aligned = reinterpret_cast<std::uintptr_t>(sum) % 16 == 0;
      for (std::size_t term = 0; term < n; ++term)
        aligned = aligned && reinterpret_cast<std::uintptr_t>(part.at[term]) % 16 == 0;
      declare_ordered_reduce(runtime, stream, {sum, count * 4, true}, part, n, count * bytes_of(type));
      SIMT_LAUNCH(ordered_reduce_kernel<T>, static_cast<unsigned>(blocks), threads, stream, sum, part,
                  static_cast<int>(n), count, first && at == 0, aligned);
    }
  });
}

}  // namespace holdfast::cuda
