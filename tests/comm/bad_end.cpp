// One rank that ends badly while the others wait for it. mpirun -n N comm_bad_end HOW FOLDER, with HOW:
//   abort      rank 1 aborts through its communicator
//   held       rank 1 aborts while its communication thread does not come back
//   exception  an exception unwinds rank 1's communicators and session
//   kill       rank 1 is killed with SIGKILL
//   timeout    rank 1 stays away; the others give up after a second
// and, alone: comm_bad_end read FOLDER prints who is stuck by the flight records FOLDER/rankN.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.hpp"
#include "src/comm/mpi_session.hpp"
#include "src/flight/recorder.hpp"

namespace holdfast::comm {
namespace {

void sleep_forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

class Holder : public OrderedReducer {
  void reduce(tensor::Stream&, int, std::int64_t, std::int64_t, std::span<const void* const>) override {
    sleep_forever();
  }
};

int read_records(const std::filesystem::path& folder) {
  std::vector<flight::FlightRecord> records;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (auto record = flight::read_flight_record(file.path())) records.push_back(std::move(*record));
  for (const flight::StuckRank& stuck : flight::stuck_ranks(records)) std::printf("%s\n", stuck.why.c_str());
  return records.empty() ? 1 : 0;
}

void end_badly(const std::string& how, MpiSession& session, Communicator& world) {
  Holder holder;
  auto alone = world.split(session.rank(), 0, "alone");
  float* mine = reinterpret_cast<float*>(world.symmetric_memory(4096).data());
  world.barrier();
  if (session.rank() != 1) {
    try {
      world.barrier();
    } catch (const Error& error) {
      std::fprintf(stderr, "rank %d: %s\n", session.rank(), error.what());
      session.abort(static_cast<int>(error.exit()));
    }
    return;
  }
  const Extent one[] = {{mine, 1, 1, DType::fp32}};
  if (how == "held") {
    alone->ordered_reduce_scatter(one, holder);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    session.abort(9);
  }
  if (how == "abort") world.abort("the test wants it");
  if (how == "exception") throw std::runtime_error("the test wants it");
  if (how == "kill") {
    // Not before the others have entered the barrier, which their records shall say.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    kill(getpid(), SIGKILL);
  }
  sleep_forever();
}

int run(const std::string& how, const std::filesystem::path& folder, int argc, char** argv) {
  try {
    MpiSession session(&argc, &argv);
    session.record_flight(folder / ("rank" + std::to_string(session.rank())));
    auto world = session.world(std::chrono::seconds(how == "timeout" ? 1 : 60));
    end_badly(how, session, *world);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 0;
}

}  // namespace
}  // namespace holdfast::comm

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string how = argv[1];
  if (how == "read") return holdfast::comm::read_records(argv[2]);
  return holdfast::comm::run(how, argv[2], argc, argv);
}
