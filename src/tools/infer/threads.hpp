#pragma once
// Work of the decoder's own loops on OpenMP's threads, which the CPU kernels use too.
#include <omp.h>

#include <cstdint>

namespace holdfast::infer {

/// How many; one under the thread sanitizer, which does not see how OpenMP's runtime orders them.
inline int max_threads() {
#ifdef __SANITIZE_THREAD__
  return 1;
#else
  return omp_get_max_threads();
#endif
}

/// task(i) for i in [0, tasks), in any order: tasks write disjoint results. They do not throw.
template <class Task>
void spread(std::int64_t tasks, const Task& task) {
  if (tasks <= 1 || max_threads() == 1) {
    for (std::int64_t i = 0; i < tasks; ++i) task(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t i = 0; i < tasks; ++i) task(i);
}

}  // namespace holdfast::infer
