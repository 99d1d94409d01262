// One block per token. A thread takes a pack of the first half of a head and the pack that it is turned with
// from the second half, two such pairs at a time; the table's row is read from near caches.
#include "src/cuda/kernels/rope.hpp"

#include "src/base/error.hpp"
#include "src/cuda/simt/element.hpp"
#include "src/cuda/simt/operands.hpp"
#include "src/cuda/simt/simt.hpp"

namespace holdfast::cuda {

namespace {

constexpr int threads = 128;

struct Turn {
  void* qkv;
  const void *cosine, *sine;
  const std::int32_t* start;  ///< or null
  std::int64_t qkv_stride, cosine_stride, sine_stride;
  int heads;  ///< of queries and keys
  int size;   ///< elements of a head
  int half;   ///< pairs of it that are turned
  int sequence;
  float direction;
};

/// size: elements of a pack; 1: any layout.
template <class T, class Table, int size>
struct Pair {
  float a[size], b[size];

  HOLDFAST_DEVICE void load(const T* first, int half) {
    if constexpr (size == 1) {
      a[0] = to_float(first[0]);
      b[0] = to_float(first[half]);
    } else {
      const auto p = Pack<T, size>::load(first), q = Pack<T, size>::load(first + half);
#pragma unroll
      for (int e = 0; e < size; ++e) {
        a[e] = p.at(e);
        b[e] = q.at(e);
      }
    }
  }
  HOLDFAST_DEVICE void store(T* first, int half) const {
    if constexpr (size == 1) {
      first[0] = rounded<T>(a[0]);
      first[half] = rounded<T>(b[0]);
    } else {
      Pack<T, size>::of(a).store(first);
      Pack<T, size>::of(b).store(first + half);
    }
  }
  HOLDFAST_DEVICE void turn(const Table* cosine, const Table* sine, float direction) {
    float c[size], s[size];
    if constexpr (size == 1) {
      c[0] = to_float(*cosine);
      s[0] = to_float(*sine);
    } else {
      const auto p = Pack<Table, size>::load(cosine), q = Pack<Table, size>::load(sine);
#pragma unroll
      for (int e = 0; e < size; ++e) {
        c[e] = p.at(e);
        s[e] = q.at(e);
      }
    }
#pragma unroll
    for (int e = 0; e < size; ++e) {
      const float p = a[e], q = b[e], signed_sine = direction * s[e];
      a[e] = p * c[e] - q * signed_sine;
      b[e] = q * c[e] + p * signed_sine;
    }
  }
};

template <class T, class Table, int size>
__global__ void __launch_bounds__(threads) rope_kernel(Turn r) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t position = token % r.sequence - (r.start == nullptr ? 0 : r.start[token]);
  T* const row = static_cast<T*>(r.qkv) + token * r.qkv_stride;
  const Table* const cosine = static_cast<const Table*>(r.cosine) + position * r.cosine_stride;
  const Table* const sine = static_cast<const Table*>(r.sine) + position * r.sine_stride;

  // Pairs of packs are numbered head by head.
  const int packs = r.half / size, count = r.heads * packs;
  for (int j = threadIdx.x; j < count; j += 2 * threads) {
    const int next = j + threads;
    const int i = j % packs * size, next_i = next % packs * size;
    T* const at = row + j / packs * r.size + i;
    T* const next_at = row + next / packs * r.size + next_i;
    Pair<T, Table, size> pair, next_pair{};  // the compiler does not see that the two conditions are one
    pair.load(at, r.half);
    if (next < count) next_pair.load(next_at, r.half);
    pair.turn(cosine + i, sine + i, r.direction);
    pair.store(at, r.half);
    if (next < count) {
      next_pair.turn(cosine + next_i, sine + next_i, r.direction);
      next_pair.store(next_at, r.half);
    }
  }
}

}  // namespace

void rope(Runtime& runtime, StreamHandle stream, const kernels::Rope& r) {
  const std::int64_t half = r.cosine.cols, heads = std::int64_t{r.heads} + r.kv_heads;
  expects(half >= 1 && 2 * half <= r.head_size && r.sequence >= 1,
          "rope: a head has all the pairs of the table");
  expects(r.qkv.cols == (heads + r.kv_heads) * r.head_size,
          "rope: qkv is T x (heads + 2 kv_heads) * head_size");
  expects(r.cosine.rows >= r.sequence, "rope: the table holds every position");
  expects(r.sine.cols == half && r.sine.rows >= r.sequence && r.sine.type == r.cosine.type,
          "rope: both tables are alike");
  expects(r.qkv.rows < (std::int64_t{1} << 31) && r.qkv.cols < (std::int64_t{1} << 30),
          "rope: int holds the indices");
  if (r.qkv.rows == 0) return;
  const Mat turned = r.qkv.cols_at(0, heads * r.head_size);  // the values stay as they are
  const Turn turn{r.qkv.data,   r.cosine.data,          r.sine.data,   r.documents.start,
                  r.qkv.stride, r.cosine.stride,        r.sine.stride, static_cast<int>(heads),
                  r.head_size,  static_cast<int>(half), r.sequence,    r.backward ? -1.0f : 1.0f};
  const std::int64_t pack = 16 / bytes_of(r.qkv.type);
  const bool whole = half % pack == 0 && r.head_size % pack == 0 && whole_packs(turned, pack) &&
                     whole_packs(r.cosine, pack) && whole_packs(r.sine, pack);
  const auto grid = static_cast<unsigned>(r.qkv.rows);

  runtime.declare(stream, "rope",
                  {writes(turned), reads(r.cosine), reads(r.sine),
                   reads(r.documents.start, r.documents.start == nullptr ? 0 : r.qkv.rows * 4)});
  with_element(r.qkv.type, [&]<class T>() {
    with_element(r.cosine.type, [&]<class Table>() {
      constexpr int size = 16 / static_cast<int>(sizeof(T));
      if (whole)
        SIMT_LAUNCH((rope_kernel<T, Table, size>), grid, threads, stream, turn);
      else
        SIMT_LAUNCH((rope_kernel<T, Table, 1>), grid, threads, stream, turn);
    });
  });
}

}  // namespace holdfast::cuda
