// The rate of PeerExchange between two nodes (or what pretends to be two) against a plain TCP stream between
// the same two: the same bytes, interleaved, medians.
//   mpirun -n 2 state_pull_bench DEVICE [ROUNDS]
// Rank 0 prints one line of JSON per size. Processor seconds are of both ranks, per gigabyte.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "src/comm/mpi_session.hpp"
#include "src/comm/peer_exchange.hpp"
#include "tests/comm/tcp_stream.hpp"

namespace holdfast::comm {
namespace {

struct Times {
  std::vector<double> wall, processor;
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure(MpiSession& session, const char* device, int rounds) {
  const int rank = session.rank(), other = 1 - rank;
  auto world = session.world(std::chrono::seconds(60));
  const auto exchange = open_exchange(*world, {.network = device, .shared_memory = false});
  TcpStream stream(rank);
  constexpr std::size_t largest = std::size_t{1} << 30;
  std::vector<std::byte> here(largest, static_cast<std::byte>(rank)), there(largest);

  for (std::size_t megabytes : {64, 256, 1024}) {
    const std::size_t bytes = megabytes << 20;
    const auto timed = [&](Times& times, const auto& what) {
      world->barrier();
      const double processor = processor_seconds();
      const auto start = Clock::now();
      what();
      times.wall.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      times.processor.push_back(processor_seconds() - processor);
    };
    const auto run = [&](bool out, bool in) {
      const PieceOut piece_out{other, 1, std::span(here).first(bytes)};
      const PieceIn piece_in{other, 1, std::span(there).first(bytes)};
      exchange->run({&piece_out, out ? 1u : 0u}, {&piece_in, in ? 1u : 0u},
                    Deadline::in(std::chrono::seconds(60)));
    };
    Times pull, plain, both;
    // The first round, in which connections and memory become warm, does not count.
    for (int round = 0; round <= rounds; ++round) {
      if (round == 1) pull = plain = both = {};
      timed(pull, [&] { run(rank == 0, rank == 1); });
      timed(plain, [&] { stream.send(rank == 0 ? here.data() : there.data(), bytes); });
      timed(both, [&] { run(true, true); });
    }
    std::uint64_t micros[] = {static_cast<std::uint64_t>(median(pull.processor) * 1e6),
                              static_cast<std::uint64_t>(median(plain.processor) * 1e6)};
    world->all_reduce(micros, Scalar::sum);
    if (rank != 0) continue;
    const double gigabytes = static_cast<double>(bytes) * 1e-9;
    const double exchanged = gigabytes / median(pull.wall), streamed = gigabytes / median(plain.wall);
    std::printf(
        "{\"MiB\": %zu, \"exchange_GBps\": %.3f, \"tcp_GBps\": %.3f, \"exchange_over_tcp\": %.3f, "
        "\"both_ways_GBps\": %.3f, \"exchange_cpu_s_per_GB\": %.3f, \"tcp_cpu_s_per_GB\": %.3f, "
        "\"over\": \"%s\"}\n",
        megabytes, exchanged, streamed, exchanged / streamed, 2 * gigabytes / median(both.wall),
        static_cast<double>(micros[0]) * 1e-6 / gigabytes, static_cast<double>(micros[1]) * 1e-6 / gigabytes,
        exchange->describe().c_str());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace holdfast::comm

int main(int argc, char** argv) {
  holdfast::comm::MpiSession session(&argc, &argv);
  if (argc < 2 || session.size() != 2) return 2;
  holdfast::comm::measure(session, argv[1], argc > 2 ? std::atoi(argv[2]) : 9);
}
