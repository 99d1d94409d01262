// For scripts/bench/client.sh, not a test: two movers in this process, over loopback, with folders below
// FOLDER.
//   mover_bench serve FOLDER                    partner copies for a program that is rank 0 of attempt 1:
//   prints the
//                                               folder of its buffers; each line that is read is a state it
//                                               has sealed
//   mover_bench rate FOLDER MIB ROUNDS RANKS    copies MIB of each of RANKS; prints a line of JSON
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <thread>
#include <vector>

#include "launcher/agent/mover/mover.hpp"
#include "launcher/agent/mover/seals.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace {

namespace fs = std::filesystem;

struct Pair {
  explicit Pair(const fs::path& under) : memory(under) {
    for (const char* node : {"a", "b"}) ::mkdir((memory / node).c_str(), 0700);
  }
  ~Pair() {
    loop.stop();
    turning.join();
  }
  Pair(const Pair&) = delete;
  void begin(int ranks) {
    Mover::Attempt attempt{1, {{"127.0.0.1"}, to.port()}, {}, -1, 0};
    for (int rank = 0; rank < ranks; ++rank) attempt.ranks.push_back(rank);
    from.begin(attempt);
  }

  fs::path memory;
  control::RealLoop loop;
  std::thread turning{[this] { loop.run(); }};
  const control::Key secret = control::random_key();
  Mover from{loop, memory / "a" / "buffers", secret}, to{loop, memory / "b" / "buffers", secret};
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void write_buffer(const fs::path& generation, const std::string& content) {
  fs::create_directories(generation);
  std::ofstream(generation / "state.buffer", std::ios::binary) << content;
}

int serve(const fs::path& under) {
  Pair movers(under);
  movers.begin(1);
  std::cout << movers.from.folder_of(0).string() << std::endl;
  for (std::string line; std::getline(std::cin, line);) movers.from.copy(0);
  return 0;
}

int rate(const fs::path& under, std::int64_t mib, int rounds, int ranks) {
  constexpr int warm_up = 2;  // both generations get their memory
  Pair movers(under);
  movers.begin(ranks);
  const std::string content(as_size(mib << 20), 'x');
  const std::uint32_t crc = snapshot::crc32_of(0, content.data(), content.size());
  std::vector<double> wall, processor;
  for (int step = 0; step < rounds + warm_up; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      const fs::path generation = movers.from.folder_of(rank) / std::to_string(step % 2);
      if (step < warm_up) write_buffer(generation, content);
      const Seal seal{step, 1, ranks, {{"state", std::ssize(content), crc}}};
      files::replace_atomically(generation / "seal", to_text(seal));
    }
    const double processor_before = processor_seconds();
    const auto begin = Clock::now();
    for (int rank = 0; rank < ranks; ++rank) movers.from.copy(rank);
    const std::string copied = fmt::format("1 {}\n", step);
    for (int rank = 0; rank < ranks; ++rank) {
      const fs::path file = movers.from.folder_of(rank) / "copied";
      while (!files::is_there(file) || files::read_text(file) != copied) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // as the client does
        if (Clock::now() - begin > std::chrono::minutes(1)) return 1;
      }
    }
    if (step < warm_up) continue;
    wall.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    processor.push_back(processor_seconds() - processor_before);
  }
  const auto there = movers.to.sealed();
  if (std::ssize(there) != 2 * ranks) return 1;  // two generations of each
  const double gigabytes = static_cast<double>(mib << 20) * ranks * 1e-9;
  fmt::print("{{\"ranks\": {}, \"MiB\": {}, \"GBps\": {:.3f}, \"cpu_s_per_GB\": {:.3f}}}\n", ranks, mib,
             gigabytes / median(wall), median(processor) / gigabytes);
  return 0;
}

}  // namespace
}  // namespace holdfast::launcher

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "serve") return holdfast::launcher::serve(argv[2]);
  if (what == "rate" && argc == 6)
    return holdfast::launcher::rate(argv[2], std::atoll(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
  return 2;
}
