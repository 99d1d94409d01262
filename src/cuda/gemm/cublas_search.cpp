// best() asks the library for candidates. Where the GPU has no room for copies of the operands, or there is
// but one candidate, the first one is taken unmeasured. Else fill() writes random operands, and race() times
// the candidates: one short turn leaves those that are near the fastest and says how many launches fill a
// turn, then the candidates take turns, and the median of their turns sorts them.
//
// In deterministic mode the fastest one is taken that gives the same bits when it is asked again (repeats())
// and adds a whole product to what lies there (adds_whole()). A candidate that the library refuses leaves the
// race; its error is cleared, or the next launch would be blamed for it.
#include "src/cuda/gemm/cublas_search.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "src/base/digest.hpp"
#include "src/base/error.hpp"
#include "src/base/units.hpp"
#include "src/cuda/runtime/cuda_error.hpp"
#include "src/cuda/runtime/native.hpp"

namespace holdfast::cuda {

namespace {
constexpr int max_candidates = 24;
constexpr int turns = 7;
constexpr double near_enough = 1.25;  // slower by more than this in its first turn: no more turns
constexpr std::int64_t fewest_launches = 4, max_launches = 64;
constexpr double turn_microseconds = 2000;
constexpr std::int64_t host_bytes = 4 << 20;
constexpr std::int64_t max_copies = 32;

/// Time between two points of a stream.
class Stopwatch {
 public:
  Stopwatch() {
    check(cudaEventCreate(&start_), "cudaEventCreate");
    const cudaError_t status = cudaEventCreate(&stop_);
    if (status != cudaSuccess) cudaEventDestroy(start_);
    check(status, "cudaEventCreate");
  }
  ~Stopwatch() { cudaEventDestroy(start_), cudaEventDestroy(stop_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start(StreamHandle stream) { check(cudaEventRecord(start_, native(stream)), "cudaEventRecord"); }
  double stop_microseconds(StreamHandle stream) {
    check(cudaEventRecord(stop_, native(stream)), "cudaEventRecord");
    check(cudaEventSynchronize(stop_), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

std::int64_t padded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Uniform in [-1, 1), of any type; 8-bit ones below 2 in size.
void fill_random(std::byte* to, std::int64_t bytes, DType type, std::uint64_t seed) {
  const std::int64_t count = bytes / bytes_of(type);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint32_t>(mix64(seed + static_cast<std::uint64_t>(i)));
    const float x = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31f;
    std::byte* place = to + i * bytes_of(type);
    if (type == DType::fp32) std::memcpy(place, &x, sizeof x);
    if (type == DType::bf16) {
      const Bf16 narrow = to_bf16(x);
      std::memcpy(place, &narrow, sizeof narrow);
    }
    if (is_fp8(type))
      *place = static_cast<std::byte>(bits & 0xbf);  // without the highest bit of the exponent
  }
}

/// Pointers for questions to the library, which looks at alignments only.
ProductPointers question(const ProductPlan& plan) {
  ProductPointers out;
  if (plan.bias) out.bias = reinterpret_cast<const void*>(std::uintptr_t{4096} + plan.bias_alignment % 16);
  return out;
}

double median(std::vector<double> values) {
  expects(!values.empty(), "a median of something");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
}  // namespace

/// Copies of a product's operands and of the algorithm's scratch, in one piece of device memory.
class CublasSearch::Operands {
 public:
  Operands(CublasSearch& search, const ProductPlan& plan)
      : runtime_(search.runtime_), plan_(plan), scratch_bytes_(search.rules_.workspace) {
    copy_bytes_ = bytes(plan.a) + bytes(plan.b) + bytes(plan.d) + bias_bytes();
    const std::int64_t wanted =
        std::clamp<std::int64_t>(2 * search.cache_bytes_ / copy_bytes_ + 1, 2, max_copies);
    const std::int64_t room = runtime_.free_bytes() / 10 * 9 - scratch_bytes_ - scale_bytes;
    copies_ = std::min(wanted, room / copy_bytes_);
    if (copies_ < 1) return;
    memory_ =
        static_cast<std::byte*>(runtime_.device_alloc(scratch_bytes_ + scale_bytes + copies_ * copy_bytes_));
  }
  ~Operands() {
    if (memory_ != nullptr) runtime_.device_free(memory_);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  std::int64_t copies() const { return std::max<std::int64_t>(0, copies_); }
  void* scratch() const { return memory_; }
  float* scales() const { return reinterpret_cast<float*>(memory_ + scratch_bytes_); }
  /// Aligned as the plan says, and not better.
  ProductPointers copy(std::int64_t index) const {
    std::byte* at = memory_ + scratch_bytes_ + scale_bytes + index * copy_bytes_;
    const auto next = [&at](int alignment, std::int64_t size) {
      std::byte* place = at + alignment % 16;
      at += size;
      return place;
    };
    ProductPointers out;
    out.a = next(plan_.a.alignment, bytes(plan_.a));
    out.b = next(plan_.b.alignment, bytes(plan_.b));
    out.d = next(plan_.d.alignment, bytes(plan_.d));
    if (plan_.bias) out.bias = next(plan_.bias_alignment, bias_bytes());
    out.scale_a = out.scale_b = scales();
    return out;
  }
  std::int64_t bias_bytes() const {
    return plan_.bias ? padded(plan_.d.rows * bytes_of(plan_.bias_type) + 16) : 0;
  }

 private:
  static constexpr std::int64_t scale_bytes = 256;
  static std::int64_t bytes(const PlanMatrix& m) { return padded(extent_bytes(m) + 16); }

  Runtime& runtime_;
  const ProductPlan& plan_;
  std::int64_t scratch_bytes_, copy_bytes_ = 0, copies_ = 0;
  std::byte* memory_ = nullptr;
};

CublasSearch::CublasSearch(Runtime& runtime, cublasLtHandle_t handle, const CublasRules& rules)
    : runtime_(runtime), handle_(handle), rules_(rules) {
  int device = 0, cache = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  cache_bytes_ = cache;
  host_ = static_cast<std::byte*>(runtime_.host_alloc(host_bytes));
  stream_ = runtime_.stream_create(Runtime::Priority::normal);
}

CublasSearch::~CublasSearch() {
  runtime_.stream_destroy(stream_);
  runtime_.host_free(host_);
}

void CublasSearch::wait() { check(cudaStreamSynchronize(native(stream_)), "cudaStreamSynchronize"); }

Algorithm CublasSearch::best(const ProductPlan& plan) {
  const Operands operands(*this, plan);
  CublasProblem problem(handle_, plan);
  problem.set_pointers(operands.copies() > 0 ? operands.copy(0) : question(plan));
  std::vector<Entrant> entrants;
  for (const Algorithm& algorithm : problem.candidates(rules_, max_candidates))
    entrants.push_back({algorithm, {}});
  if (entrants.empty())
    throw Error(Exit::runtime, fmt::format("{} has no algorithm for {}", cublas_version(), describe(plan)),
                fmt::format("within {} of scratch, {}", size_text(rules_.workspace),
                            rules_.deterministic ? "deterministic" : "in any order"));
  if (operands.copies() == 0 || entrants.size() == 1) return entrants.front().algorithm;
  const std::size_t asked = entrants.size();
  fill(operands, plan);
  race(problem, operands, entrants);
  wait();  // for launches in front of one that was refused
  for (const Entrant& entrant : entrants)
    if (!rules_.deterministic ||
        (repeats(problem, operands, entrant.algorithm) && adds_whole(problem, operands, entrant.algorithm)))
      return entrant.algorithm;
  throw Error(
      Exit::runtime, fmt::format("no algorithm of {} computes {}", cublas_version(), describe(plan)),
      fmt::format("{} candidates failed, gave other bits when asked again, or do not add whole sums", asked),
      "Is the GPU healthy?");
}

void CublasSearch::fill(const Operands& operands, const ProductPlan& plan) {
  const auto spread = [&](const void* to, std::int64_t bytes, DType type, std::uint64_t seed) {
    if (bytes == 0) return;
    fill_random(host_, std::min(host_bytes, bytes), type, seed);
    for (std::int64_t done = 0; done < bytes; done += host_bytes)
      runtime_.copy(stream_, static_cast<std::byte*>(const_cast<void*>(to)) + done, host_,
                    std::min(host_bytes, bytes - done));
    wait();  // the numbers are on their way until then
  };
  for (std::int64_t i = 0; i < operands.copies(); ++i) {
    const ProductPointers at = operands.copy(i);
    const auto seed = static_cast<std::uint64_t>(i) << 32;
    spread(at.a, extent_bytes(plan.a), plan.a.type, seed);
    spread(at.b, extent_bytes(plan.b), plan.b.type, seed + 1'000'000);
    spread(at.bias, operands.bias_bytes() == 0 ? 0 : plan.d.rows * bytes_of(plan.bias_type), plan.bias_type,
           seed);
    runtime_.zero(stream_, at.d, extent_bytes(plan.d));
  }
  const float ones[] = {1.0f};
  std::memcpy(host_, ones, sizeof ones);
  runtime_.copy(stream_, operands.scales(), host_, sizeof ones);
  wait();
}

bool CublasSearch::launch(CublasProblem& problem, const Operands& operands, const Algorithm& algorithm,
                          std::int64_t index) {
  problem.set_pointers(operands.copy(index % operands.copies()));
  if (problem.run(stream_, algorithm, operands.scratch(), rules_.workspace) == CUBLAS_STATUS_SUCCESS)
    return true;
  cudaGetLastError();  // a launch that was refused is remembered, and would be blamed on the next one
  return false;
}

std::optional<double> CublasSearch::time(CublasProblem& problem, const Operands& operands,
                                         const Algorithm& algorithm, std::int64_t launches) {
  Stopwatch watch;
  if (!launch(problem, operands, algorithm, 0)) return std::nullopt;  // also loads the kernel
  watch.start(stream_);
  for (std::int64_t i = 1; i <= launches; ++i)
    if (!launch(problem, operands, algorithm, i)) return std::nullopt;
  return watch.stop_microseconds(stream_) / static_cast<double>(launches);
}

void CublasSearch::race(CublasProblem& problem, const Operands& operands, std::vector<Entrant>& entrants) {
  const auto turn = [&](std::int64_t launches) {
    for (Entrant& entrant : entrants) {
      if (!entrant.near) continue;
      if (const auto microseconds = time(problem, operands, entrant.algorithm, launches))
        entrant.microseconds.push_back(*microseconds);
      else
        entrant.failed = true;
    }
    std::erase_if(entrants, [](const Entrant& e) { return e.failed; });
  };
  turn(fewest_launches);  // says who is near, and how many launches a turn must have
  if (entrants.empty()) return;
  double fastest = INFINITY;
  for (const Entrant& entrant : entrants) fastest = std::min(fastest, entrant.microseconds.front());
  for (Entrant& entrant : entrants) {
    entrant.near = entrant.microseconds.front() <= near_enough * fastest;
    if (entrant.near) entrant.microseconds.clear();
  }
  const auto launches = std::clamp(static_cast<std::int64_t>(turn_microseconds / std::max(fastest, 1.0)),
                                   fewest_launches, max_launches);
  for (int i = 0; i < turns; ++i) turn(launches);
  for (Entrant& entrant : entrants)
    entrant.algorithm.microseconds = std::round(median(entrant.microseconds) * 100) / 100;
  std::stable_sort(entrants.begin(), entrants.end(), [](const Entrant& a, const Entrant& b) {
    return a.algorithm.microseconds < b.algorithm.microseconds;
  });
}

bool CublasSearch::repeats(CublasProblem& problem, const Operands& operands, const Algorithm& algorithm) {
  const std::int64_t bytes = extent_bytes(problem.plan().d);
  const auto result = [&]() -> std::optional<std::uint64_t> {
    runtime_.zero(stream_, operands.copy(0).d, bytes);  // what is added to
    if (!launch(problem, operands, algorithm, 0)) return std::nullopt;
    return hash_of(operands.copy(0).d, bytes);
  };
  const auto first = result(), second = result();
  return first && first == second;
}

/// A product that is added to itself is doubled, which is exact.
bool CublasSearch::adds_whole(CublasProblem& problem, const Operands& operands, const Algorithm& algorithm) {
  ProductPlan plan = problem.plan();
  if (plan.d.type != DType::fp32) return true;
  plan.add = true;
  CublasProblem adding(handle_, plan);
  const std::int64_t bytes = extent_bytes(plan.d);
  const void* const result = operands.copy(0).d;
  if (!launch(problem, operands, algorithm, 0)) return false;
  const std::uint64_t wanted = hash_of(result, bytes, true);
  return launch(adding, operands, algorithm, 0) && hash_of(result, bytes) == wanted;
}

std::uint64_t CublasSearch::hash_of(const void* memory, std::int64_t bytes, bool doubled) {
  std::uint64_t hash = 0;
  for (std::int64_t done = 0; done < bytes; done += host_bytes) {
    const std::int64_t part = std::min(host_bytes, bytes - done);
    runtime_.copy(stream_, host_, static_cast<const std::byte*>(memory) + done, part);
    wait();
    for (std::int64_t i = 0; i < part; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, host_ + i, std::min<std::int64_t>(8, part - i));
      if (doubled) {
        auto pair = std::bit_cast<std::array<float, 2>>(word);
        for (float& x : pair) x *= 2;
        word = std::bit_cast<std::uint64_t>(pair);
      }
      hash = mix64(hash ^ word) + 1;
    }
  }
  return hash;
}

}  // namespace holdfast::cuda
