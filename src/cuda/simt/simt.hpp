#pragma once
// One source of a kernel for two compilers. Under nvcc these are thin macros over CUDA; under g++, for tests,
// every thread of a block is a fiber that runs from one barrier or shuffle to the next in random order, so
// that what is missing shows: a barrier, an initial value, a declared access (tests/cuda/sim/fibers.hpp). A
// launch under g++ does not run at once: it is enqueued on the simulated stream.
//
// What a kernel may use: threadIdx, blockIdx, blockDim, gridDim; SIMT_SHARED; __syncthreads, __syncwarp,
// __threadfence; __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync; integer atomics; the
// functions of <cmath> and the rounding intrinsics below. Parameters are passed by value and are trivially
// copyable.
#include <cstdint>

#include "src/cuda/runtime/runtime.hpp"

/// SIMT_SHARED(T, name, n): `name` points to n elements that the block shares, aligned to 16, not
/// initialised. n is a constant.
///
/// SIMT_LAUNCH(kernel, grid, block, stream, arguments...): `grid` and `block` are numbers or dim3, `stream` a
/// StreamHandle; a template's name with commas goes into parentheses. Throws Error (runtime) when the launch
/// is refused.

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <string>

#include "src/base/error.hpp"

namespace holdfast::cuda::simt {

inline cudaStream_t native(StreamHandle stream) { return reinterpret_cast<cudaStream_t>(stream); }

inline void launched(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw Error(Exit::runtime, std::string("the GPU refused the kernel ") + kernel,
                cudaGetErrorString(error));
}

}  // namespace holdfast::cuda::simt

// Bytes, because a __shared__ array's type may not have default member initialisers.
#define SIMT_SHARED(T, name, n)                                         \
  __shared__ __align__(16) unsigned char name##_bytes[sizeof(T) * (n)]; \
  T* const name = reinterpret_cast<T*>(name##_bytes)

#define SIMT_LAUNCH(kernel, grid, block, stream, ...)                                \
  do {                                                                               \
    kernel<<<grid, block, 0, ::holdfast::cuda::simt::native(stream)>>>(__VA_ARGS__); \
    ::holdfast::cuda::simt::launched(#kernel);                                       \
  } while (false)

#else  // g++

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  bool operator==(const dim3&) const = default;
};

namespace holdfast::cuda::simt {

/// A kernel with its arguments, ready to run.
struct Launch {
  const char* name = "";
  dim3 grid, block;
  std::vector<std::byte> arguments;  ///< their bytes, without padding: equal launches have equal ones
  std::function<void()> thread;      ///< one thread's work
};
/// Behind everything enqueued on `stream`.
void enqueue(StreamHandle stream, Launch launch);

/// Where the calling fiber is.
struct Here {
  dim3 thread{0, 0, 0}, block{0, 0, 0}, block_size, grid;
};
extern thread_local constinit Here here __attribute__((tls_model("initial-exec")));

inline unsigned thread_number() {
  return here.thread.x + here.block_size.x * (here.thread.y + here.block_size.y * here.thread.z);
}
inline int lane() { return static_cast<int>(thread_number() % 32); }

/// A place in the source: all threads that meet must meet at the same one.
struct Site {
  const char* file;
  int line;
  const char* what;
};
void block_barrier(Site site);
/// Lanes of `mask` meet; each gets the value of lane `source`. Of a lane that does not take part: poison.
std::uint64_t exchange(Site site, unsigned mask, std::uint64_t value, int source);
/// Bit l: lane l of `mask` brought true.
unsigned ballot(Site site, unsigned mask, bool value);
/// The block's array behind `key`, poisoned when it is first asked for.
void* shared(const void* key, const char* name, std::size_t bytes);

template <class T>
T shuffle(Site site, unsigned mask, T value, int source) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "as CUDA's shuffles");
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = exchange(site, mask, word, source);
  std::memcpy(&value, &word, sizeof value);
  return value;
}

template <class T>
void append_bytes(std::vector<std::byte>& to, T value) {
  __builtin_clear_padding(&value);
  to.resize(to.size() + sizeof value);
  std::memcpy(to.data() + to.size() - sizeof value, &value, sizeof value);
}

template <class... P, class... A>
void launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, StreamHandle stream,
            A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel gets all of its arguments");
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments travel as bytes");
  Launch work{name, grid, block, {}, {}};
  std::tuple<P...> values{std::forward<A>(arguments)...};
  std::apply([&](const P&... value) { (append_bytes(work.arguments, value), ...); }, values);
  work.thread = [kernel, values] { std::apply(kernel, values); };
  enqueue(stream, std::move(work));
}

template <class T>
concept AtomicWord = std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;

}  // namespace holdfast::cuda::simt

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (::holdfast::cuda::simt::here.thread)
#define blockIdx (::holdfast::cuda::simt::here.block)
#define blockDim (::holdfast::cuda::simt::here.block_size)
#define gridDim (::holdfast::cuda::simt::here.grid)

#define SIMT_SHARED(T, name, n)     \
  static const char name##_key = 0; \
  T* const name = static_cast<T*>(::holdfast::cuda::simt::shared(&name##_key, #name, sizeof(T) * (n)))

#define SIMT_LAUNCH(kernel, grid, block, stream, ...) \
  ::holdfast::cuda::simt::launch(#kernel, kernel, grid, block, stream __VA_OPT__(, ) __VA_ARGS__)

// Only the order among threads matters here: blocks run one after the other and fibers do not overlap.
inline void __threadfence() {}
inline void __threadfence_block() {}

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  holdfast::cuda::simt::block_barrier({file, line, "__syncthreads"});
}
inline void __syncwarp(unsigned mask = ~0u, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  holdfast::cuda::simt::exchange({file, line, "__syncwarp"}, mask, 0, holdfast::cuda::simt::lane());
}
inline unsigned __ballot_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return holdfast::cuda::simt::ballot({file, line, "__ballot_sync"}, mask, predicate != 0);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  const int first = holdfast::cuda::simt::lane() & ~(width - 1);
  return holdfast::cuda::simt::shuffle({file, line, "__shfl_sync"}, mask, value,
                                       first + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  const int lane = holdfast::cuda::simt::lane(), source = lane ^ bits;
  const bool inside = source < (lane & ~(width - 1)) + width;
  return holdfast::cuda::simt::shuffle({file, line, "__shfl_xor_sync"}, mask, value, inside ? source : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const int lane = holdfast::cuda::simt::lane(), source = lane + static_cast<int>(delta);
  const bool inside = source < (lane & ~(width - 1)) + width;
  return holdfast::cuda::simt::shuffle({file, line, "__shfl_down_sync"}, mask, value, inside ? source : lane);
}

template <holdfast::cuda::simt::AtomicWord T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = old + value;
  return old;
}
template <holdfast::cuda::simt::AtomicWord T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  if (value > old) *address = value;
  return old;
}
template <holdfast::cuda::simt::AtomicWord T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  if (value < old) *address = value;
  return old;
}
template <holdfast::cuda::simt::AtomicWord T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = old | value;
  return old;
}
template <holdfast::cuda::simt::AtomicWord T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = value;
  return old;
}

// Compiled with -ffp-contract=off, so each is one rounding, as on the GPU.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

#endif
