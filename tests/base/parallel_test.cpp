#include "src/base/parallel.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "src/base/as_size.hpp"

namespace holdfast {
namespace {

TEST(ParallelFor, does_every_piece_once_and_numbers_its_threads) {
  for (const int workers : {1, 3, 100}) {
    std::vector<std::atomic<int>> done(40), made(100);
    parallel_for(done.size(), workers, [&](int worker) {
      ++made[worker];
      return [&](std::size_t piece) { ++done[piece]; };
    });
    for (const auto& times : done) EXPECT_EQ(times, 1);
    for (std::size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i], i < as_size(std::min(workers, 40))) << i;
  }
  parallel_for(0, 4, [](int) { return [](std::size_t) { FAIL(); }; });
}

TEST(ParallelFor, throws_what_the_earliest_piece_threw_and_begins_none_after_a_failure) {
  for (const int workers : {1, 4}) {
    std::atomic<int> begun = 0, held = 0;
    const auto work = [&](int) {
      return [&](std::size_t piece) {
        ++begun;
        if (piece < 8) return;
        if (workers == 4) {  // two pieces fail, the earlier one later
          ++held;
          while (held < (piece == 8 ? 2 : 1)) std::this_thread::yield();
        }
        throw std::runtime_error(std::to_string(piece));
      };
    };
    try {
      parallel_for(1000, workers, work);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "8");
    }
    EXPECT_LE(begun, 8 + workers);
  }
}

}  // namespace
}  // namespace holdfast
