#include "src/cuda/kernels/ordered_sum.hpp"

#include <algorithm>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

using kernels::OrderedSum;

constexpr int threads = 128;
constexpr int ahead = 4;     ///< terms that a thread loads at once
constexpr int deepest = 32;  ///< sums of a stack
constexpr unsigned begins = 0x80;

/// One pass over terms, as a parameter of the kernel (at most 4 KiB).
struct Pass {
  const void* term[terms_of_pass];
  std::uint8_t addition[terms_of_pass];  ///< merges, and whether the term begins a sum
  float* sum[deepest];                   ///< where they lie
  float* result;                         ///< where the lowest one goes; null: where it lies
  int terms, before;
};
static_assert(sizeof(Pass) < 3072);

/// Elements [at, at + left), at most a pack of 16 bytes of T. The sum on top is in registers, those that the
/// pass has begun below it in `below`, `threads` packs apart (not `stacks`: there are none); deeper ones in
/// memory.
template <class T, bool stacks, bool whole>
HOLDFAST_DEVICE void add_up(const Pass& pass, Pack<float, Pack<T>::size>* below, std::int64_t at,
                            std::int64_t left) {
  using In = Pack<T>;
  using Sum = Pack<float, In::size>;
  float x[In::size];
  int in_memory = pass.before, held = 0;
  bool any = false;  // x is a sum
  for (int first = 0; first < pass.terms; first += ahead) {
    In next[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int term = first + i < pass.terms ? first + i : first;
      next[i] = In::template load<whole>(static_cast<const T*>(pass.term[term]) + at, left);
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (first + i >= pass.terms) break;
      const unsigned what = pass.addition[first + i];
      if ((what & begins) != 0) {
        if constexpr (stacks) {
          if (any) below[threads * held++] = Sum::of(x);
        }
#pragma unroll
        for (int j = 0; j < In::size; ++j) x[j] = next[i].at(j);
      } else {
        if (!any) {
          const auto top = Sum::template load<whole>(pass.sum[--in_memory] + at, left);
#pragma unroll
          for (int j = 0; j < In::size; ++j) x[j] = top.at(j);
        }
#pragma unroll
        for (int j = 0; j < In::size; ++j) x[j] += next[i].at(j);
      }
      any = true;
#pragma unroll 1
      for (unsigned merges = what & ~begins; merges > 0; --merges) {
        Sum neighbour;
        if (stacks && held > 0)
          neighbour = below[threads * --held];
        else
          neighbour = Sum::template load<whole>(pass.sum[--in_memory] + at, left);
#pragma unroll
        for (int j = 0; j < In::size; ++j) x[j] = neighbour.at(j) + x[j];
      }
    }
  }
  const auto place = [&](int number) {
    return (number == 0 && pass.result != nullptr ? pass.result : pass.sum[number]) + at;
  };
  if constexpr (stacks)
    for (int i = 0; i < held; ++i) below[threads * i].template store<whole>(place(in_memory + i), left);
  Sum::of(x).template store<whole>(place(in_memory + held), left);
}

/// Without a stack more blocks run at once.
template <class T, bool stacks>
__global__ void __launch_bounds__(threads)
    ordered_sum_kernel(const Pass pass, std::int64_t elements, bool aligned) {
  using Sum = Pack<float, Pack<T>::size>;
  SIMT_SHARED(Sum, room, stacks ? threads * sums_of_pass : 1);
  Sum* const below = room + (stacks ? threadIdx.x : 0);
  constexpr int pack = Pack<T>::size;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * pack;
  const std::int64_t left = elements - at;
  if (left <= 0) return;
  if (aligned && left >= pack)
    add_up<T, stacks, true>(pass, below, at, left);
  else
    add_up<T, stacks, false>(pass, below, at, left);
}

/// The launch of one pass: what the kernel needs, and what it reads and writes.
struct Launch {
  Pass pass{};
  std::vector<Access> accesses;
  bool aligned = true, stacks = false;

  void use(const Access& access) {
    accesses.push_back(access);
    aligned = aligned && reinterpret_cast<std::uintptr_t>(access.data) % 16 == 0;
  }
};

Launch launch_of(const OrderedSum& s, std::size_t first, std::size_t count, int before) {
  Launch out;
  out.pass.terms = static_cast<int>(count);
  out.pass.before = before;
  int sums = before, lowest = before;
  for (std::size_t i = 0; i < count; ++i) {
    const Addition& addition = s.additions[first + i];
    expects(addition.merges >= 0 && addition.merges < deepest, "ordered_sum: merges of a stack");
    out.pass.term[i] = s.terms[first + i];
    out.pass.addition[i] =
        static_cast<std::uint8_t>(static_cast<unsigned>(addition.merges) | (addition.begins ? begins : 0));
    out.use(reads(s.terms[first + i], s.count * bytes_of(s.type)));
    out.stacks = out.stacks || (addition.begins && i > 0);
    sums += (addition.begins ? 1 : 0) - addition.merges;
    lowest = std::min(lowest, sums - 1);
  }
  expects(lowest >= 0 && std::max(sums, before) <= deepest, "ordered_sum: a stack of so many sums");
  const bool last = first + count == s.terms.size();
  if (last) out.pass.result = s.result;
  for (int number = lowest; number < std::max(sums, before); ++number) {
    float* const place = out.pass.sum[number] = s.sums.empty() ? nullptr : s.sums[as_size(number)];
    if (number < before) out.use(reads(place, s.count * 4));
    if (number < sums)
      out.use(writes(number == 0 && out.pass.result != nullptr ? out.pass.result : place, s.count * 4));
  }
  return out;
}

}  // namespace

void ordered_sum(Runtime& runtime, StreamHandle stream, const OrderedSum& s) {
  expects(s.count >= 0 && s.terms.size() == s.additions.size(), "ordered_sum: an addition for every term");
  if (s.count == 0) return;
  int before = s.before;
  for (std::size_t first = 0; first < s.terms.size();) {
    const std::size_t count = pass_of(s.additions.subspan(first));
    const Launch launch = launch_of(s, first, count, before);
    for (const Access& access : launch.accesses) runtime.declare(stream, "ordered_sum", {access});
    with_element(s.type, [&]<class T>() {
      const std::int64_t per_block = threads * Pack<T>::size, blocks = (s.count + per_block - 1) / per_block;
      expects(blocks < std::int64_t{1} << 31, "ordered_sum: blocks are counted in 31 bits");
      const auto grid = static_cast<unsigned>(blocks);
      if (launch.stacks)
        SIMT_LAUNCH((ordered_sum_kernel<T, true>), grid, threads, stream, launch.pass, s.count,
                    launch.aligned);
      else
        SIMT_LAUNCH((ordered_sum_kernel<T, false>), grid, threads, stream, launch.pass, s.count,
                    launch.aligned);
    });
    before = sums_behind(s.additions.subspan(first, count), before);
    first += count;
  }
}

}  // namespace holdfast::cuda
