#pragma once
// The few functions of the CUDA driver that the runtime library does not offer. They are asked for while
// running: a program that is linked with libcuda.so.1 does not even start where there is no driver.
#include <cuda.h>

#include <array>
#include <cstdint>

namespace holdfast::cuda {

/// Of GPU `index`, as CUDA counts; of a MIG slice its own, where the runtime library gives that of the whole
/// GPU. Throws Error (runtime).
std::array<unsigned char, 16> uuid_of(int index);

/// Stream memory operations: a stream waits for, or writes, a word of memory without occupying a
/// multiprocessor.
class StreamWords {
 public:
  /// Throws Error (runtime) when the driver has no such function.
  StreamWords();
  /// The write comes behind a fence for the whole system.
  void write(CUstream stream, std::uint32_t* word, std::uint32_t value) const;
  /// Later work starts once int32(*word - value) >= 0.
  void wait(CUstream stream, const std::uint32_t* word, std::uint32_t value) const;

 private:
  using Function = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  Function *write_ = nullptr, *wait_ = nullptr;
};

}  // namespace holdfast::cuda
