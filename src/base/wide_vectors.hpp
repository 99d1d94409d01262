#pragma once
// Call this after library code that uses wide vectors and does not clean up after itself, such as ISA-L's for
// AVX-512. While the upper halves of vector registers are in use, each SSE instruction of the thread waits
// for the one before that wrote the same register: log() and sin() take seven times as long (measured on
// Sapphire Rapids).

namespace holdfast {

namespace detail {
__attribute__((target("avx"))) inline void zero_upper_halves() { __builtin_ia32_vzeroupper(); }
}  // namespace detail

inline void leave_wide_vectors() {
  if (__builtin_cpu_supports("avx")) detail::zero_upper_halves();
}

}  // namespace holdfast
