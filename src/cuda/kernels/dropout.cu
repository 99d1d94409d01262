// A thread takes the four elements of a row that one Philox block decides.
#include "src/cuda/kernels/dropout.hpp"

#include "src/base/error.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"
#include "src/tensor/philox.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 128, pack = 4;

struct Drop {
  void* out;
  const void* in;
  const std::int64_t* first_sample;
  std::int64_t out_stride, in_stride, cols, first_token;
  std::uint64_t key;
  std::uint32_t threshold;
  int sequence;
  float factor;
  unsigned pieces;  ///< of a row
};

template <class To, class From, bool drops, bool adds, bool whole>
__global__ void __launch_bounds__(threads) dropout_kernel(Drop a) {
  const std::int64_t row = blockIdx.x / a.pieces;
  const std::int64_t block = std::int64_t{blockIdx.x % a.pieces} * threads + threadIdx.x, i = block * pack;
  if (i >= a.cols) return;
  const std::int64_t left = a.cols - i;
  const auto x =
      Pack<From, pack>::template load<whole>(static_cast<const From*>(a.in) + row * a.in_stride + i, left);
  To* const out = static_cast<To*>(a.out) + row * a.out_stride + i;
  float y[pack];
#pragma unroll
  for (int e = 0; e < pack; ++e) y[e] = x.at(e) * a.factor;
  if constexpr (drops) {
    const std::int64_t token = a.first_token + row;
    const auto sample = static_cast<std::uint64_t>(*a.first_sample + token / a.sequence);
    const auto words =
        tensor::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(token % a.sequence),
                        static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)},
                       {static_cast<std::uint32_t>(a.key), static_cast<std::uint32_t>(a.key >> 32)});
#pragma unroll
    for (int e = 0; e < pack; ++e) y[e] = words[e] >= a.threshold ? y[e] : 0.0f;
  }
  if constexpr (adds) {
    const auto sum = Pack<To, pack>::template load<whole>(out, left);
#pragma unroll
    for (int e = 0; e < pack; ++e) y[e] = sum.at(e) + y[e];
  }
  Pack<To, pack>::of(y).template store<whole>(out, left);
}

}  // namespace

void dropout(Runtime& runtime, StreamHandle stream, const kernels::Dropout& d) {
  expects(d.out.rows == d.in.rows && d.out.cols == d.in.cols, "dropout: out is as large as in");
  const bool adds = d.write == kernels::Write::add, drops = d.threshold > 0;
  expects(!adds || d.out.type == DType::fp32, "dropout: sums are fp32");
  if (d.in.rows == 0 || d.in.cols == 0) return;
  Drop a{};
  a.out = d.out.data;
  a.in = d.in.data;
  a.first_sample = d.first_sample;
  a.out_stride = d.out.stride;
  a.in_stride = d.in.stride;
  a.cols = d.in.cols;
  a.first_token = d.first_token;
  a.key = d.key;
  a.threshold = d.threshold;
  a.sequence = d.sequence;
  a.factor = d.factor;
  a.pieces = static_cast<unsigned>((d.in.cols + threads * pack - 1) / (threads * pack));
  expects(d.in.rows * a.pieces < std::int64_t{1} << 31, "dropout: a grid has less than 2^31 blocks");
  const auto grid = static_cast<unsigned>(d.in.rows * a.pieces);
  const bool whole = whole_packs(d.out, pack) && whole_packs(d.in, pack);

  runtime.declare(stream, "dropout",
                  {reads(d.in), adds ? reads(ConstMat(d.out)) : Access{}, writes(d.out),
                   reads(a.first_sample, drops ? static_cast<std::int64_t>(sizeof(std::int64_t)) : 0)});
  const auto launch = [&]<class To, class From, bool drop, bool add>() {
    if (whole)
      SIMT_LAUNCH((dropout_kernel<To, From, drop, add, true>), grid, threads, stream, a);
    else
      SIMT_LAUNCH((dropout_kernel<To, From, drop, add, false>), grid, threads, stream, a);
  };
  with_element(d.in.type, [&]<class From>() {
    if (adds) {
      drops ? launch.template operator()<float, From, true, true>()
            : launch.template operator()<float, From, false, true>();
      return;
    }
    with_element(d.out.type, [&]<class To>() {
      drops ? launch.template operator()<To, From, true, false>()
            : launch.template operator()<To, From, false, false>();
    });
  });
}

}  // namespace holdfast::cuda
