#include "src/tools/corpus/crew.hpp"

#include <chrono>
#include <future>

#include "src/base/parallel.hpp"

namespace holdfast::corpus {

void share_out(const std::string& stage, const std::vector<std::size_t>& numbers, int workers,
               std::uint64_t all, const Watch& watch, const std::function<void(std::size_t, Tally&)>& work) {
  Tally tally;
  const auto do_one = [&](std::size_t i) {
    try {
      tally.add(0);
      work(numbers[i], tally);
    } catch (const Tally::Stopped&) {  // for what another one throws, or `watch`
    } catch (...) {
      tally.stop();
      throw;
    }
  };
  auto over = std::async(std::launch::async, [&] {
    parallel_for(numbers.size(), workers > 0 ? workers : usable_cores(), [&](int) { return do_one; });
  });
  try {
    while (over.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout) {
      if (watch.progress) watch.progress(stage, tally.done(), all);
      if (watch.check) watch.check();
    }
  } catch (...) {
    tally.stop();
    throw;
  }
  over.get();
  if (watch.check) watch.check();
}

}  // namespace holdfast::corpus
