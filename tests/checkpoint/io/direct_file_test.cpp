// Writes past the page cache by several threads, of which one meets an end that is not aligned.
#include "checkpoint/io/direct_file.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "checkpoint/io/direct_reader.hpp"
#include "tests/checkpoint/fixture.hpp"

namespace holdfast::checkpoint {
namespace {

using namespace testing;

/// All of them find out at the same moment that the file has to be written through the page cache.
TEST(NewFile, GoesOnBufferedForAllOfItsThreads) {
  constexpr int threads = 8, rounds = 200;
  constexpr std::int64_t each = 512;  // no multiple of a page
  const Folder folder;
  std::string bytes(threads * each, 'x');
  for (int round = 0; round < rounds; ++round) {
    NewFile file(folder.path() / std::to_string(round), threads * each, true);
    if (!file.direct()) GTEST_SKIP() << "this file system knows no direct writes";
    std::barrier together(threads);
    std::vector<std::string> failed(threads);
    std::vector<std::thread> writers;
    for (int t = 0; t < threads; ++t)
      writers.emplace_back([&, t] {
        together.arrive_and_wait();
        try {
          file.write(std::as_bytes(std::span(bytes).subspan(t * each + 1, each - 1)), t * each + 1);
        } catch (const std::exception& error) {
          failed[t] = error.what();
        }
      });
    for (std::thread& writer : writers) writer.join();
    for (const std::string& why : failed) ASSERT_EQ(why, "") << "round " << round;
  }
}

}  // namespace
}  // namespace holdfast::checkpoint
