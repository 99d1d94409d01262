// The constructor duplicates MPI_COMM_WORLD and finds the nodes: ranks under one kernel and in one pid
// namespace share a node if all of them can open the memory that the first of them has created; else each of
// them counts as a node of its own, and messages go between them.
//
// With several ranks the first world() starts the communication thread and a group of all ranks, whose
// doorbells and mailboxes lie in that memory; every world is a regroup() of it. From then on that thread
// alone calls MPI, until the destructor has ended it; abort() is the exception.
//
// Groups whose messages nobody takes any more live until MPI_Finalize has returned, and the communicator is
// then not freed. While an exception unwinds the destructor aborts the job instead, so that no rank waits in
// MPI_Finalize.
#include "src/comm/mpi_session.hpp"

#include <mpi.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <numeric>

#include "src/base/digest.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/comm/mpi_communicator.hpp"
#include "src/comm/mpi_engine.hpp"
#include "src/comm/solo_communicator.hpp"

namespace holdfast::comm {

/// Made by the main thread, before there is a communication thread; the only calls of MPI besides those of
/// that thread.
struct MpiSession::State {
  int rank = 0, size = 1;
  int exceptions_at_start = std::uncaught_exceptions();
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> node_of;      // by rank: lowest rank with which it shares memory
  SharedMemory memory;           // of this node: bells, and the mailboxes of `all`
  std::vector<Doorbell*> bells;  // by rank
  std::unique_ptr<flight::FlightRecorder> recorder;
  std::shared_ptr<MpiWorld> base;
  std::shared_ptr<MpiEngine> engine;
  std::unique_ptr<MpiCommunicator> all;  // of which worlds are made

  void find_nodes();
  void start();
};

namespace {

/// One block per rank of a node.
struct NodeBlock {
  Doorbell bell;
  MpiGroup::Mailbox mailbox;
};

/// Equal for processes that can open each other's descriptors in /proc: same kernel, same process space.
std::uint64_t kernel_and_process_space() {
  std::error_code ignored;
  const std::string text = files::read_text("/proc/sys/kernel/random/boot_id") +
                           std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  return hash_name(text.data(), text.size());
}

}  // namespace

/// Ranks are of one node when the first of them can show its memory to all of them.
void MpiSession::State::find_nodes() {
  MPI_Comm node = MPI_COMM_NULL;
  // By the kernel's word: with MPI_COMM_TYPE_SHARED ranks of two nodes were seen to disagree about who is
  // near, and to wait for each other forever.
  const std::uint64_t here = kernel_and_process_space();
  std::vector<std::uint64_t> all_of(size);
  MPI_Allgather(&here, 1, MPI_UINT64_T, all_of.data(), 1, MPI_UINT64_T, comm);
  const auto lowest = std::find(all_of.begin(), all_of.end(), here) - all_of.begin();
  MPI_Comm_split(comm, static_cast<int>(lowest), rank, &node);
  int place = 0, members = 1, first = rank;
  MPI_Comm_rank(node, &place);
  MPI_Comm_size(node, &members);
  MPI_Bcast(&first, 1, MPI_INT, 0, node);
  std::uint64_t handle[4] = {};
  if (place == 0) {
    memory = SharedMemory::create(members * static_cast<std::int64_t>(sizeof(NodeBlock)));
    const auto mine = memory.handle();
    handle[0] = mine.process;
    handle[1] = mine.descriptor;
    handle[2] = mine.token;
    handle[3] = mine.bytes;
  }
  MPI_Bcast(handle, 4, MPI_UINT64_T, 0, node);
  int seen = 1;
  if (place != 0) {
    auto opened = SharedMemory::open({handle[0], handle[1], handle[2], handle[3]});
    seen = opened.has_value();
    if (opened) memory = std::move(*opened);
  }
  MPI_Allreduce(MPI_IN_PLACE, &seen, 1, MPI_INT, MPI_MIN, node);
  if (seen == 0) {
    if (place == 0)
      log::warn(
          "ranks of this node cannot share memory (another pid namespace?); they send messages instead");
    memory = SharedMemory::create(static_cast<std::int64_t>(sizeof(NodeBlock)));
    place = 0;
    first = rank;
  }
  memory.close();
  MPI_Comm_free(&node);
  node_of.resize(size);
  MPI_Allgather(&first, 1, MPI_INT, node_of.data(), 1, MPI_INT, comm);
}

void MpiSession::State::start() {
  if (engine) return;
  if (!recorder) recorder = std::make_unique<flight::FlightRecorder>("", rank, size);
  auto* block = reinterpret_cast<NodeBlock*>(memory.bytes().data());
  std::vector<MpiGroup::Mailbox*> mailboxes(size, nullptr);
  bells.assign(size, nullptr);
  for (std::size_t r = 0; r < node_of.size(); ++r)
    if (node_of[r] == node_of[rank]) {
      bells[r] = &block->bell;
      mailboxes[r] = &block->mailbox;
      ++block;
    }
  base = std::make_shared<MpiWorld>();
  base->comm = comm;
  base->rank = rank;
  base->node_of = node_of;
  base->bells = bells;
  base->recorder = recorder.get();
  engine = std::make_shared<MpiEngine>(*bells[rank]);
  base->beat = engine->beat();
  base->awaited_ns = std::make_unique<std::atomic<std::int64_t>[]>(as_size(size));
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  auto group = std::make_shared<MpiGroup>(base, "all ranks", 0, std::move(ranks), SharedMemory(),
                                          std::move(mailboxes));
  all = std::make_unique<MpiCommunicator>(engine, std::move(group), std::make_shared<std::uint32_t>(1), true);
}

MpiSession::MpiSession(int* argc, char*** argv) : state_(std::make_unique<State>()) {
  // Open MPI would give the core away in every look for messages when ranks share cores. The communication
  // thread sleeps between its looks, which brings it back ten times sooner.
  env::set("OMPI_MCA_mpi_yield_when_idle", "0");
  env::set("OMPI_MCA_mpi_oversubscribe", "0");
  int provided = 0;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    throw Error(Exit::runtime, "MPI did not start", "MPI_Init_thread failed");
  MPI_Comm_rank(MPI_COMM_WORLD, &state_->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &state_->size);
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    throw Error(Exit::runtime, "this MPI allows calls from the first thread only",
                "MPI_THREAD_SERIALIZED was refused", "Use an Open MPI built with thread support");
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &state_->comm);
  MPI_Comm_set_errhandler(state_->comm, MPI_ERRORS_RETURN);
  state_->find_nodes();
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > state_->exceptions_at_start) abort(static_cast<int>(Exit::runtime));
  state_->all.reset();
  std::vector<std::shared_ptr<MpiGroup>> unfinished;
  if (state_->engine) unfinished = state_->engine->stop();
  if (unfinished.empty()) MPI_Comm_free(&state_->comm);
  MPI_Finalize();
}

int MpiSession::rank() const { return state_->rank; }
int MpiSession::size() const { return state_->size; }

int MpiSession::ranks_on_this_node() const {
  int count = 0;
  for (int node : state_->node_of) count += node == state_->node_of[state_->rank];
  return count;
}

void MpiSession::record_flight(const std::filesystem::path& path) {
  expects(!state_->recorder, "the flight is recorded in one place, from the beginning");
  state_->recorder = std::make_unique<flight::FlightRecorder>(path, state_->rank, state_->size);
}

flight::FlightRecorder& MpiSession::flight() const {
  if (!state_->recorder)
    state_->recorder = std::make_unique<flight::FlightRecorder>("", state_->rank, state_->size);
  return *state_->recorder;
}

std::unique_ptr<Communicator> MpiSession::world(const WorldOptions& options) const {
  if (state_->size == 1) return std::make_unique<SoloCommunicator>();
  state_->start();
  auto world = std::make_shared<MpiWorld>();
  world->comm = state_->comm;
  world->rank = state_->rank;
  world->limit = state_->base->limit = options.limit;
  world->node_of = state_->node_of;
  world->bells = state_->bells;
  world->recorder = state_->recorder.get();
  world->beat = state_->engine->beat();
  world->awaited_ns = std::make_unique<std::atomic<std::int64_t>[]>(as_size(state_->size));
  world->explain = state_->base->explain = options.explain;
  if (options.ranks_per_node > 0)
    for (int rank = 0; rank < state_->size; ++rank) {
      int first = rank / options.ranks_per_node * options.ranks_per_node;
      const auto real = [&](int r) { return state_->node_of[r]; };
      while (real(first) != real(rank)) ++first;
      world->node_of[rank] = first;
    }
  return state_->all->regroup(0, state_->rank, "the world", std::move(world));
}

std::unique_ptr<Communicator> MpiSession::world(std::chrono::milliseconds limit) const {
  return world(WorldOptions{limit});
}

void MpiSession::abort(int exit_code) noexcept {
  if (state_->engine) state_->engine->abort(exit_code);
  end_job(exit_code);
}

}  // namespace holdfast::comm
