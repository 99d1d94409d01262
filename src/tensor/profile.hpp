#pragma once
// Where the time of a rank's compute thread goes: totals by kind of work, always; single spans while a step
// is traced. Recording takes two readings of the clock and allocates nothing.
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"

namespace holdfast::tensor {

enum class Work : std::uint8_t {
  matmul,     ///< products of the blocks
  attention,  ///< forward and backward
  pointwise,  ///< norms, rotary positions, SwiGLU, embedding, biases
  head,       ///< head products and cross entropy
  optimizer,  ///< AdamW and the gradient norm
  waiting,    ///< for communication that was not hidden
  data,       ///< reading samples
};
constexpr std::size_t kinds_of_work = 7;
std::string_view name_of(Work work);

class Profile {
 public:
  using Time = Clock::time_point;
  struct Totals {
    double seconds = 0, flops = 0;
    std::int64_t calls = 0;
  };
  struct Span {
    Work work = Work::matmul;
    const char* name = "";  ///< lives for ever
    Time start{}, end{};
  };

  /// Room for the spans of traced steps; what does not fit is left out and counted.
  explicit Profile(std::size_t spans = 0) { spans_.reserve(spans); }

  /// Without a name only the totals know of it: for what happens thousands of times in a step.
  void record(Work work, const char* name, Time start, Time end, double flops = 0);
  /// Runs `work` and records it.
  template <class Task>
  void time(Work work, const char* name, const Task& task, double flops = 0) {
    const Time start = Clock::now();
    task();
    record(work, name, start, Clock::now(), flops);
  }

  const Totals& totals(Work work) const { return totals_[as_size(work)]; }
  void clear();
  /// Spans are kept from here on, or no longer.
  void trace(bool on) { tracing_ = on; }
  bool tracing() const { return tracing_; }
  const std::vector<Span>& spans() const { return spans_; }
  std::int64_t left_out() const { return left_out_; }

 private:
  std::array<Totals, kinds_of_work> totals_{};
  std::vector<Span> spans_;
  std::int64_t left_out_ = 0;
  bool tracing_ = false;
};

}  // namespace holdfast::tensor
