#pragma once
// Many pieces of work for a few threads.
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "src/base/as_size.hpp"

namespace holdfast {

/// Cores that this process may run on.
int usable_cores();

/// Does `work(0) ... work(count - 1)`, each once, begun in this order, by up to `workers` threads, the
/// caller's among them, and returns when all are done. `make(worker)` is called by each thread that takes
/// part (the caller's is worker 0) and gives its `work`, with what memory it needs. Throws what the earliest
/// piece that failed threw, so that the same trouble always gives the same message; none is begun after a
/// failure.
template <class Make>
void parallel_for(std::size_t count, int workers, Make make) {
  std::mutex lock;
  std::size_t next = 0, failed = count;
  std::exception_ptr failure;
  const auto take = [&](std::size_t& piece) {
    const std::scoped_lock hold(lock);
    if (failure || next == count) return false;
    piece = next++;
    return true;
  };
  const auto run = [&](int worker) {
    std::size_t piece = 0;
    try {
      auto work = make(worker);
      while (take(piece)) work(piece);
    } catch (...) {
      const std::scoped_lock hold(lock);
      if (failure && piece >= failed) return;
      failed = piece;
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int worker = 1; worker < workers && as_size(worker) < count; ++worker)
      others.emplace_back(run, worker);
  } catch (const std::system_error&) {  // no more threads to be had: fewer do it all
  }
  if (count > 0) run(0);
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace holdfast
