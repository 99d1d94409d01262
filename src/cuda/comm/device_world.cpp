// A world is made, given its memory once, and ended; each of the first two is collective over the host's
// communicator.
//
// The constructor lets all ranks know each other's node and GPU as hashes. probe() then tries CUDA IPC with 4
// KiB before anything depends on it: where it fails for one rank, all ranks of that node count as nodes of
// their own. allocate() makes and zeroes this rank's memory, exports it, and opens that of the others of the
// node.
//
// A rank that fails in allocate() keeps its Error, takes part in the exchanges that follow, and throws in
// agree() together with all others; memory is freed only once nobody has it open any more. The destructor
// closes the memory of the others and waits until they all have closed ours, for 5 s and only while no
// failure is known; else, as after leave_memory(), it stays until the process ends.
#include "src/cuda/comm/device_world.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/digest.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"
#include "src/cuda/runtime/cuda_stream.hpp"

namespace holdfast::cuda {
namespace {

constexpr std::size_t handle_words = sizeof(IpcHandle) / sizeof(std::uint64_t);
constexpr std::int64_t probe_bytes = 4096;
constexpr auto leaving_time = std::chrono::seconds(5);

std::uint64_t hash_of(const std::string& text) { return hash_name(text.data(), text.size()); }

/// Equal for processes that can open each other's descriptors and device memory: same kernel, same process
/// space.
std::uint64_t this_node() {
  std::error_code ignored;
  return hash_of(files::read_text("/proc/sys/kernel/random/boot_id") +
                 std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string());
}

}  // namespace

std::vector<std::uint64_t> share(comm::Communicator& host, std::span<const std::uint64_t> words) {
  std::vector<std::uint64_t> all(words.size() * as_size(host.size()), 0);
  std::copy(words.begin(), words.end(),
            all.begin() + static_cast<std::ptrdiff_t>(words.size()) * host.rank());
  host.all_reduce(all, comm::Scalar::sum);
  return all;
}

void agree(comm::Communicator& host, const std::optional<Error>& failure, const std::string& problem) {
  const std::uint64_t failed[] = {failure.has_value()};
  const auto who = share(host, failed);
  if (failure) throw Error(*failure);
  if (const auto bad = std::find(who.begin(), who.end(), 1u); bad != who.end())
    throw Error(Exit::runtime, problem,
                fmt::format("member {} of {} could not do it", bad - who.begin(), host.size()));
}

comm::SharedMemory share_memory(comm::Communicator& host, int owner, std::int64_t bytes) {
  comm::SharedMemory memory;
  std::optional<Error> failure;
  comm::SharedMemory::Handle mine;
  try {
    if (host.rank() == owner) {
      memory = comm::SharedMemory::create(bytes);
      mine = memory.handle();
    }
  } catch (const Error& error) {
    failure = error;
  }
  const std::uint64_t words[] = {mine.process, mine.descriptor, mine.token, mine.bytes};
  const auto all = share(host, words);
  const std::uint64_t* theirs = &all[as_size(owner) * 4];
  if (host.rank() != owner && theirs[2] != 0) {
    auto opened = comm::SharedMemory::open({theirs[0], theirs[1], theirs[2], theirs[3]});
    if (opened)
      memory = std::move(*opened);
    else
      failure.emplace(Exit::runtime, "ranks of one node do not see each other's memory",
                      fmt::format("member {} cannot open what its peer has created", host.rank()));
  }
  agree(host, failure, "no memory that the ranks of a node share");
  memory.close();
  return memory;
}

/// How many ranks of the node have closed the memory of the others.
struct DeviceWorld::Leaving {
  std::atomic<std::uint64_t> closed;
};

DeviceWorld::DeviceWorld(comm::Communicator& host, Runtime& runtime_, Nccl* nccl_, Watch& watch_,
                         const CommunicatorOptions& options_)
    : runtime(runtime_),
      nccl(nccl_),
      watch(watch_),
      options(options_),
      rank_(host.rank()),
      size_(host.size()) {
  const std::uint64_t facts[] = {options.node != 0 ? options.node : this_node(),
                                 hash_of(runtime.facts().uuid)};
  const auto all = share(host, facts);
  for (std::size_t r = 0; r < as_size(size_); ++r) {
    node_of_.push_back(all[2 * r]);
    gpu_of_.push_back(all[2 * r + 1]);
  }
  probe(host);
}

DeviceWorld::~DeviceWorld() {
  if (memory_ == nullptr || left_) return;
  close(base_of_);
  const auto all = static_cast<std::uint64_t>(mates().size());
  auto& closed = reinterpret_cast<Leaving*>(leaving_.bytes().data())->closed;
  ++closed;
  // Whoever has failed may never come; then the driver frees it when the processes are gone.
  const Deadline deadline = Deadline::in(leaving_time);
  while (closed.load() < all && !watch.failure() && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (closed.load() == all) runtime.device_free(memory_);
}

std::vector<int> DeviceWorld::mates() const {
  std::vector<int> out;
  for (int r = 0; r < size_; ++r)
    if (node_of_[r] == node_of_[rank_]) out.push_back(r);
  return out;
}

bool DeviceWorld::near(std::span<const int> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int r) { return node_of_[r] == node_of_[ranks.front()]; });
}

bool DeviceWorld::share_a_gpu(std::span<const int> ranks) const {
  std::vector<std::uint64_t> gpus;
  for (int r : ranks) gpus.push_back(gpu_of_[r]);
  std::sort(gpus.begin(), gpus.end());
  return std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end();
}

/// Ranks of a node that cannot open each other's device memory (GPUs that are no peers, containers of their
/// own) count as nodes of their own: a small piece of memory shows it before anything depends on it.
void DeviceWorld::probe(comm::Communicator& host) {
  std::optional<Error> failure;
  void* memory = nullptr;
  IpcHandle handle{};
  std::vector<std::byte*> opened;
  try {
    memory = runtime.device_alloc(probe_bytes);
    if (mates().size() > 1) handle = runtime.ipc_export(memory);
  } catch (const Error& error) {
    failure = error;
  }
  opened = open_mates(host, handle, probe_bytes, failure);
  close(opened);
  const std::uint64_t failed[] = {failure.has_value()};
  const auto who = share(host, failed);  // also: everybody has closed it
  if (memory != nullptr) runtime.device_free(memory);
  if (failure)
    log::warn("the GPUs of this node do not read each other's memory ({}); NCCL moves the bytes",
              failure->what());
  const std::vector<std::uint64_t> nodes = node_of_;
  for (std::size_t r = 0; r < nodes.size(); ++r)
    for (std::size_t other = 0; other < nodes.size(); ++other)
      if (nodes[other] == nodes[r] && who[other] != 0) node_of_[r] = hash_of(fmt::format("rank {} alone", r));
}

std::vector<std::byte*> DeviceWorld::open_mates(comm::Communicator& host, const IpcHandle& mine,
                                                std::int64_t bytes, std::optional<Error>& failure) {
  std::uint64_t words[handle_words];
  std::memcpy(words, mine.data(), sizeof words);
  const auto all = share(host, words);
  std::vector<std::byte*> opened(size_, nullptr);
  try {
    for (int r : mates()) {
      if (r == rank_ || failure) continue;
      IpcHandle theirs;
      std::memcpy(theirs.data(), &all[as_size(r) * handle_words], sizeof theirs);
      if (theirs == IpcHandle{}) continue;  // it has none and will say so
      opened[r] = static_cast<std::byte*>(runtime.ipc_open(theirs, bytes));
    }
  } catch (const Error& error) {
    failure = error;
  }
  return opened;
}

void DeviceWorld::close(std::span<std::byte* const> opened) noexcept {
  for (std::byte* memory : opened)
    if (memory != nullptr && memory != memory_) runtime.ipc_close(memory);
}

std::span<std::byte> DeviceWorld::allocate(comm::Communicator& host, std::int64_t bytes) {
  expects(memory_ == nullptr && bytes >= 0, "symmetric memory is asked for once");
  const std::string problem = fmt::format("no {} of memory that the ranks' GPUs share", size_text(bytes));
  leaving_ = share_memory(host, mates().front(), sizeof(Leaving));
  std::optional<Error> failure;
  IpcHandle handle{};
  void* memory = nullptr;
  try {
    memory = runtime.device_alloc(std::max<std::int64_t>(bytes, 1));
    zero(memory, bytes);
    if (mates().size() > 1) handle = runtime.ipc_export(memory);
  } catch (const Error& error) {
    failure.emplace(
        Exit::runtime, problem, error.what(),
        "Gathered parameters and gradients lie there: shard over more ranks, keep and prefetch fewer "
        "units, or use a smaller model; is another process on this GPU?");
  }
  std::vector<std::byte*> opened = open_mates(host, handle, bytes, failure);
  try {
    agree(host, failure, problem);
  } catch (const Error&) {
    close(opened);
    host.barrier();  // nobody has it open
    if (memory != nullptr) runtime.device_free(memory);
    throw;
  }
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = as_size(bytes);
  base_of_ = std::move(opened);
  base_of_[rank_] = memory_;
  return this->memory();
}

void DeviceWorld::zero(void* memory, std::int64_t bytes) {
  CudaStream stream(runtime, "zeroes", {.limit = options.limit});
  stream.zero(memory, bytes);
  stream.record().wait();
}

bool DeviceWorld::contains(const void* data, std::int64_t bytes) const {
  const auto* at = static_cast<const std::byte*>(data);
  return memory_ != nullptr && at >= memory_ && at + bytes <= memory_ + bytes_;
}

}  // namespace holdfast::cuda
