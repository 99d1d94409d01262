// How fast the collectives are, against what they are measured by: MPI's own, memcpy and a plain TCP stream.
// Everything is interleaved in one run, and medians are compared.
//   mpirun -n RANKS collectives_bench node [ROUNDS]   inside a node
//   mpirun -n 2     collectives_bench pair [ROUNDS]   between two nodes (or what pretends to be two)
// Rank 0 prints one line of JSON per size; each number is given [from medians, from the best
// times, from the processor time of the process]: the last is what remains comparable on a machine that
// others use, between things that do not wait.
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/comm/mpi_session.hpp"
#include "tests/comm/tcp_stream.hpp"

namespace holdfast::comm {
namespace {

using tensor::Bf16;
using tensor::to_float;

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <class T>
__attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default"))) void add_sources(
    float* sum, std::int64_t count, std::span<const void* const> sources) {
  constexpr std::int64_t block =
      2048;  // of the sum stays in the first cache while all sources stream past it
  for (std::int64_t at = 0; at < count; at += block) {
    const std::int64_t n = std::min(block, count - at);
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const T* source = static_cast<const T*>(sources[s]) + at;
      float* to = sum + at;
      if (s == 0)
        for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(source[i]);
      else
        for (std::int64_t i = 0; i < n; ++i) to[i] += to_float(source[i]);
    }
  }
}

class Sum : public OrderedReducer {
 public:
  Sum(DType type, std::vector<float>& sum) : type_(type), sum_(sum) {}
  void reduce(tensor::Stream&, int, std::int64_t first, std::int64_t count,
              std::span<const void* const> sources) override {
    if (type_ == DType::fp32)
      add_sources<float>(sum_.data() + first, count, sources);
    else
      add_sources<Bf16>(sum_.data() + first, count, sources);
  }

 private:
  DType type_;
  std::vector<float>& sum_;
};

__attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default"))) void add_bf16(void* in,
                                                                                           void* inout,
                                                                                           int* count,
                                                                                           MPI_Datatype*) {
  const auto* a = static_cast<const Bf16*>(in);
  auto* b = static_cast<Bf16*>(inout);
  for (int i = 0; i < *count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(to_float(a[i]) + to_float(b[i]));
    b[i].bits = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

struct Case {
  const char* name;
  std::function<void()> run;
};
struct Times {
  double median = 0, best = 0;  ///< by the clock
  double processor = 0;         ///< median of the time in which this process computed, all threads
};

/// Of the slowest rank's times, over `rounds` rounds through all cases.
std::vector<Times> measure(const std::vector<Case>& cases, int rounds) {
  std::vector<std::vector<double>> times(cases.size()), processor(cases.size());
  for (int round = 0; round <= rounds; ++round)
    for (std::size_t i = 0; i < cases.size(); ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start[] = {seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
      cases[i].run();
      double time[] = {seconds(CLOCK_MONOTONIC) - start[0], seconds(CLOCK_PROCESS_CPUTIME_ID) - start[1]};
      MPI_Allreduce(MPI_IN_PLACE, time, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (round == 0) continue;  // touches the memory
      times[i].push_back(time[0]);
      processor[i].push_back(time[1]);
    }
  std::vector<Times> out;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    std::sort(processor[i].begin(), processor[i].end());
    const std::size_t middle = times[i].size() / 2;
    out.push_back({times[i][middle], times[i][0], processor[i][middle]});
  }
  return out;
}

/// `"name": [of medians, of bests, of processor times]`, with a comma before it.
void print_ratio(const char* name, const Times& above, const Times& below) {
  std::printf(", \"%s\": [%.2f, %.2f, %.2f]", name, above.median / below.median, above.best / below.best,
              above.processor / below.processor);
}
void print_ratio(const char* name, double above, const Times& below) {
  print_ratio(name, Times{above, above, above}, below);
}

void inside_a_node(MpiSession& session, int rounds) {
  const int rank = session.rank(), size = session.size();
  constexpr std::int64_t largest = 64 << 20;
  auto world = session.world(std::chrono::seconds(60));
  const auto memory = world->symmetric_memory(largest);
  MPI_Datatype bf16;
  MPI_Op add;
  MPI_Type_contiguous(2, MPI_BYTE, &bf16);
  MPI_Type_commit(&bf16);
  MPI_Op_create(add_bf16, 1, &add);
  std::vector<std::byte> ours(largest), theirs(largest);
  std::vector<float> sum(largest / 2 / as_size(size));  // of bf16 of 64 MiB
  for (std::int64_t megabytes : {1, 16, 64}) {
    const std::int64_t bytes = megabytes << 20;
    for (std::int64_t i = 0; i < bytes / 2; ++i)
      reinterpret_cast<Bf16*>(memory.data())[i].bits = static_cast<std::uint16_t>(0x3f80 + i % 64);
    std::memcpy(theirs.data(), memory.data(), bytes);
    const auto extent = [&](DType type) {
      const std::int64_t n = bytes / bytes_of(type);
      return Extent{memory.data(), n, n / size, type};
    };
    const Extent fp32[] = {extent(DType::fp32)}, half[] = {extent(DType::bf16)};
    Sum sum32(DType::fp32, sum), sum16(DType::bf16, sum);
    const std::vector<int> counts32(size, static_cast<int>(fp32[0].part)),
        counts16(as_size(size), static_cast<int>(half[0].part));
    const int part = static_cast<int>(bytes / size);
    const auto t = measure(
        {{"reduce-scatter fp32", [&] { world->ordered_reduce_scatter(fp32, sum32).wait(); }},
         {"MPI_Reduce_scatter fp32",
          [&] {
            MPI_Reduce_scatter(theirs.data(), ours.data(), counts32.data(), MPI_FLOAT, MPI_SUM,
                               MPI_COMM_WORLD);
          }},
         {"reduce-scatter bf16", [&] { world->ordered_reduce_scatter(half, sum16).wait(); }},
         {"MPI_Reduce_scatter bf16",
          [&] {
            MPI_Reduce_scatter(theirs.data(), ours.data(), counts16.data(), bf16, add, MPI_COMM_WORLD);
          }},
         {"all_gather", [&] { world->all_gather(fp32).wait(); }},
         {"memcpy",
          [&] {
            // What a gather must copy at the least: the parts of the others.
            std::memcpy(ours.data(), theirs.data(), bytes - part);
          }},
         {"MPI_Allgather",
          [&] { MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, theirs.data(), part, MPI_BYTE, MPI_COMM_WORLD); }},
         {"barrier", [&] { world->barrier(); }}},
        rounds);
    const double bus = static_cast<double>(bytes) * (size - 1) / size * 1e-9;
    if (rank != 0) continue;
    std::printf("{\"ranks\": %d, \"MiB\": %ld", size, static_cast<long>(megabytes));
    print_ratio("ordered_reduce_scatter_fp32_GBps", bus, t[0]);
    print_ratio("ordered_reduce_scatter_fp32_over_mpi", t[1], t[0]);
    print_ratio("ordered_reduce_scatter_bf16_GBps", bus, t[2]);
    print_ratio("ordered_reduce_scatter_bf16_over_mpi", t[3], t[2]);
    print_ratio("gather_GBps", bus, t[4]);
    print_ratio("memcpy_GBps", bus, t[5]);
    print_ratio("gather_over_memcpy", t[5], t[4]);
    print_ratio("gather_over_mpi", t[6], t[4]);
    std::printf(", \"barrier_us\": [%.1f, %.1f, %.1f]}\n", t[7].median * 1e6, t[7].best * 1e6,
                t[7].processor * 1e6);
  }
  MPI_Op_free(&add);
  MPI_Type_free(&bf16);
}

void between_nodes(MpiSession& session, int rounds) {
  const int rank = session.rank();
  constexpr std::int64_t largest = 64 << 20;
  auto world = session.world({std::chrono::seconds(60), 1});  // on one machine as well as on two
  const auto memory = world->symmetric_memory(2 * largest);
  TcpStream stream(rank);
  std::vector<float> sum(largest / 4);
  Sum adds(DType::fp32, sum);
  for (std::int64_t megabytes : {1, 16, 64}) {
    const std::int64_t bytes = megabytes << 20, n = bytes / 4;
    // All of it is rank 0's part: one way, like the stream. And both ways at once, as a step does it.
    const Extent one_way[] = {{memory.data(), n, n, DType::fp32}},
                 both[] = {{memory.data(), 2 * n, n, DType::fp32}};
    const auto t = measure({{"all_gather", [&] { world->all_gather(one_way).wait(); }},
                            {"stream", [&] { stream.send(memory.data(), as_size(bytes)); }},
                            {"both ways", [&] { world->all_gather(both).wait(); }},
                            {"reduce-scatter", [&] { world->ordered_reduce_scatter(both, adds).wait(); }}},
                           rounds);
    const double gigabytes = static_cast<double>(bytes) * 1e-9;
    if (rank != 0) continue;
    std::printf("{\"MiB\": %ld", static_cast<long>(megabytes));
    print_ratio("message_GBps", gigabytes, t[0]);
    print_ratio("tcp_GBps", gigabytes, t[1]);
    print_ratio("message_over_tcp", t[1], t[0]);
    print_ratio("both_ways_GBps", 2 * gigabytes, t[2]);
    print_ratio("ordered_reduce_scatter_GBps", 2 * gigabytes, t[3]);
    std::printf("}\n");
  }
}

}  // namespace
}  // namespace holdfast::comm

int main(int argc, char** argv) {
  holdfast::comm::MpiSession session(&argc, &argv);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  if (argc > 1 && std::strcmp(argv[1], "pair") == 0)
    holdfast::comm::between_nodes(session, rounds);
  else
    holdfast::comm::inside_a_node(session, rounds);
}
