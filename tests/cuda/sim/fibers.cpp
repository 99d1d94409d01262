#include "tests/cuda/sim/fibers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "src/base/error.hpp"
#include "tests/cuda/sim/finding.hpp"
#include "tests/support/fiber_switch.hpp"

namespace holdfast::cuda {

thread_local constinit simt::Here simt::here;

namespace sim {
namespace {

using test::FiberSwitch;

enum class State { fresh, ready, at_barrier, at_warp, done };

struct Fiber {
  State state = State::fresh;
  FiberSwitch::Context context;
  simt::Site site{"", 0, ""};
  unsigned mask = 0;
  std::uint64_t value = 0, result = 0;
  int source = 0;
};

constexpr std::uint64_t poison = ~std::uint64_t{0};
constexpr std::size_t guard = 64, shared_limit = 48 << 10;
constexpr std::byte guard_byte{0xa5}, poison_byte{0xff};

/// An array of the block, between two guards.
struct Shared {
  const void* key;
  const char* name;
  std::size_t bytes;
  std::unique_ptr<std::byte[]> memory;
  bool used = false;  ///< by this block
  std::byte* data() const { return memory.get() + guard; }
};

std::string text(const simt::Site& site) {
  return fmt::format("{} at {}:{}", site.what, site.file, site.line);
}
bool same(const simt::Site& a, const simt::Site& b) {
  return a.line == b.line && std::strcmp(a.file, b.file) == 0 && std::strcmp(a.what, b.what) == 0;
}

/// One block at a time.
class Block {
 public:
  Block(const simt::Launch& launch, Dice& dice)
      : launch_(launch),
        dice_(dice),
        count_(launch.block.x * launch.block.y * launch.block.z),
        fibers_(count_),
        waiting_((count_ + 31) / 32) {
    runnable_.reserve(count_);
  }
  ~Block() {
    for (Fiber& fiber : fibers_) FiberSwitch::drop(fiber.context);
  }

  void run(dim3 index);

  // Called on fibers
  void barrier(simt::Site site);
  std::uint64_t exchange(simt::Site site, unsigned mask, std::uint64_t value, int source);
  unsigned ballot(simt::Site site, unsigned mask, bool value);
  void* shared(const void* key, const char* name, std::size_t bytes);

 private:
  static void enter();
  void resume(unsigned number);
  /// Back to run(); returns when the fiber goes on.
  void leave();
  /// The fiber never goes on, so nothing on its stack is destroyed; run() throws failure_.
  [[noreturn]] void give_up();
  void meet(simt::Site site, unsigned mask);
  /// Lanes of the warp that there are.
  unsigned lanes(unsigned warp) const {
    return count_ - warp * 32 >= 32 ? ~0u : (1u << (count_ - warp * 32)) - 1;
  }
  void check_guards();
  std::string stuck() const;
  std::string where() const {
    return fmt::format("kernel {}, block ({}, {}, {})", launch_.name, simt::here.block.x, simt::here.block.y,
                       simt::here.block.z);
  }

  const simt::Launch& launch_;
  Dice& dice_;
  unsigned count_;
  std::vector<Fiber> fibers_;
  std::vector<unsigned> runnable_;
  std::vector<unsigned> waiting_;  ///< per warp: lanes that wait for others of the warp
  std::vector<Shared> shared_;
  unsigned current_ = 0, at_barrier_ = 0, done_ = 0;
  std::optional<std::string> failure_;
  FiberSwitch switch_{64 << 10};
};

thread_local Block* block = nullptr;

void Block::enter() {
  block->switch_.entered();
  block->launch_.thread();
  block->fibers_[block->current_].state = State::done;
  ++block->done_;
  block->leave();
}

void Block::resume(unsigned number) {
  Fiber& fiber = fibers_[number];
  if (fiber.state == State::fresh) switch_.start(fiber.context, &Block::enter);
  fiber.state = State::ready;
  current_ = number;
  const dim3 size = launch_.block;
  simt::here.thread = dim3(number % size.x, number / size.x % size.y, number / (size.x * size.y));
  switch_.resume(fiber.context);
  if (fiber.state == State::done) FiberSwitch::drop(fiber.context);
}

void Block::leave() {
  Fiber& fiber = fibers_[current_];
  switch_.suspend(fiber.context, fiber.state == State::done);
}

void Block::give_up() {
  leave();
  __builtin_unreachable();
}

void Block::run(dim3 index) {
  simt::here.block = index;
  done_ = at_barrier_ = 0;
  runnable_.resize(count_);
  std::iota(runnable_.begin(), runnable_.end(), 0u);
  for (Fiber& fiber : fibers_) fiber.state = State::fresh;
  for (Shared& array : shared_) array.used = false;
  block = this;
  while (!runnable_.empty() && !failure_) {
    std::swap(runnable_[dice_.below(runnable_.size())], runnable_.back());
    const unsigned next = runnable_.back();
    runnable_.pop_back();
    resume(next);
  }
  block = nullptr;
  if (!failure_ && done_ < count_) failure_ = stuck();
  if (failure_) throw Finding(fmt::format("{}: {}", where(), *failure_));
  check_guards();
}

std::string Block::stuck() const {
  for (unsigned i = 0; i < count_; ++i) {
    const Fiber& fiber = fibers_[i];
    if (fiber.state == State::at_warp)
      return fmt::format(
          "thread {} waits in {} for lanes {:#x} of its warp, which do not all come ({} threads have ended, "
          "{} wait at a barrier)",
          i, text(fiber.site), fiber.mask, done_, at_barrier_);
  }
  for (unsigned i = 0; i < count_; ++i)
    if (fibers_[i].state == State::at_barrier)
      return fmt::format("thread {} waits at {}, which only {} of {} threads reach ({} have ended)", i,
                         text(fibers_[i].site), at_barrier_, count_, done_);
  return "no thread can go on";
}

void Block::barrier(simt::Site site) {
  Fiber& fiber = fibers_[current_];
  fiber.site = site;
  fiber.state = State::at_barrier;
  if (++at_barrier_ == count_) {
    for (unsigned i = 0; i < count_; ++i) {
      if (!same(fibers_[i].site, site)) {
        failure_ = fmt::format("threads {} and {} meet at different barriers: {} and {}", current_, i,
                               text(site), text(fibers_[i].site));
        give_up();
      }
      runnable_.push_back(i);
    }
    at_barrier_ = 0;
  }
  leave();
}

void Block::meet(simt::Site site, unsigned mask) {
  const unsigned number = current_, warp = number / 32, first = warp * 32, bit = 1u << number % 32;
  if ((mask & bit) == 0) {
    failure_ = fmt::format("thread {} is not in the mask {:#x} of {}", number, mask, text(site));
    give_up();
  }
  Fiber& fiber = fibers_[number];
  fiber.site = site;
  fiber.mask = mask;
  fiber.state = State::at_warp;
  waiting_[warp] |= bit;
  const unsigned needed = mask & lanes(warp);
  bool complete = (waiting_[warp] & needed) == needed;
  for (unsigned rest = needed; complete && rest != 0; rest &= rest - 1) {
    const Fiber& other = fibers_[first + static_cast<unsigned>(std::countr_zero(rest))];
    complete = other.mask == mask && same(other.site, site);
  }
  if (complete) {
    waiting_[warp] &= ~needed;
    for (unsigned rest = needed; rest != 0; rest &= rest - 1) {
      const unsigned lane = first + static_cast<unsigned>(std::countr_zero(rest));
      Fiber& other = fibers_[lane];
      const bool there = other.source >= 0 && other.source < 32 && (needed >> other.source & 1) != 0;
      other.result = there ? fibers_[first + static_cast<unsigned>(other.source)].value : poison;
      runnable_.push_back(lane);
    }
  }
  leave();
}

std::uint64_t Block::exchange(simt::Site site, unsigned mask, std::uint64_t value, int source) {
  Fiber& fiber = fibers_[current_];
  fiber.value = value;
  fiber.source = source;
  meet(site, mask);
  return fiber.result;
}

/// Two rounds, so that no lane brings its next value before all have read this one.
unsigned Block::ballot(simt::Site site, unsigned mask, bool value) {
  const unsigned number = current_, first = number / 32 * 32, needed = mask & lanes(number / 32);
  fibers_[number].value = value;
  fibers_[number].source = static_cast<int>(number % 32);
  meet(site, mask);
  unsigned bits = 0;
  for (unsigned rest = needed; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    bits |= static_cast<unsigned>(fibers_[first + lane].value != 0) << lane;
  }
  meet(site, mask);
  return bits;
}

void* Block::shared(const void* key, const char* name, std::size_t bytes) {
  auto at =
      std::find_if(shared_.begin(), shared_.end(), [&](const Shared& array) { return array.key == key; });
  if (at == shared_.end()) {
    shared_.push_back({key, name, bytes, std::make_unique<std::byte[]>(bytes + 2 * guard)});
    at = shared_.end() - 1;
    std::size_t all = 0;
    for (const Shared& array : shared_) all += (array.bytes + 15) / 16 * 16;
    if (all > shared_limit) {
      failure_ = fmt::format("{} bytes of shared memory, which has {}", all, shared_limit);
      give_up();
    }
  }
  if (!at->used) {
    at->used = true;
    std::fill_n(at->memory.get(), at->bytes + 2 * guard, guard_byte);
    std::fill_n(at->data(), at->bytes, poison_byte);
  }
  return at->data();
}

void Block::check_guards() {
  for (const Shared& array : shared_) {
    if (!array.used) continue;
    const auto whole = [](const std::byte* from) {
      return std::all_of(from, from + guard, [](std::byte x) { return x == guard_byte; });
    };
    if (!whole(array.memory.get()) || !whole(array.data() + array.bytes))
      throw Finding(
          fmt::format("{} wrote beyond its shared array {} of {} bytes", where(), array.name, array.bytes));
  }
}

}  // namespace

void check_launch(const simt::Launch& launch) {
  const dim3 g = launch.grid, b = launch.block;
  const auto empty = [](dim3 x) { return x.x == 0 || x.y == 0 || x.z == 0; };
  if (empty(g) || empty(b) || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || b.x > 1024 || b.y > 1024 ||
      b.z > 64 || std::uint64_t{b.x} * b.y * b.z > 1024)
    throw Finding(
        fmt::format("kernel {} with a grid of ({}, {}, {}) and blocks of ({}, {}, {}), which a GPU refuses",
                    launch.name, g.x, g.y, g.z, b.x, b.y, b.z));
  if (launch.arguments.size() > 4096)
    throw Finding(fmt::format("kernel {} with {} bytes of arguments, more than 4096", launch.name,
                              launch.arguments.size()));
}

void run_grid(const simt::Launch& launch, Dice& dice) {
  Block runner(launch, dice);
  simt::here.grid = launch.grid;
  simt::here.block_size = launch.block;
  const std::uint64_t x = launch.grid.x, y = launch.grid.y, blocks = x * y * launch.grid.z;
  // A random order without a list of all blocks: steps of a length that shares no factor with their number.
  std::uint64_t step = blocks == 1 ? 1 : 1 + dice.below(blocks - 1), at = dice.below(blocks);
  while (std::gcd(step, blocks) != 1) step = step % blocks + 1;
  for (std::uint64_t i = 0; i < blocks; ++i, at = (at + step) % blocks)
    runner.run(dim3(static_cast<unsigned>(at % x), static_cast<unsigned>(at / x % y),
                    static_cast<unsigned>(at / (x * y))));
}

}  // namespace sim

namespace simt {
namespace {

/// Fails loudly when device code is called by the host.
sim::Block& now() {
  expects(sim::block != nullptr, "barriers, shuffles and shared memory are for kernels");
  return *sim::block;
}

}  // namespace

void block_barrier(Site site) { now().barrier(site); }
std::uint64_t exchange(Site site, unsigned mask, std::uint64_t value, int source) {
  return now().exchange(site, mask, value, source);
}
unsigned ballot(Site site, unsigned mask, bool value) { return now().ballot(site, mask, value); }
void* shared(const void* key, const char* name, std::size_t bytes) { return now().shared(key, name, bytes); }

}  // namespace simt
}  // namespace holdfast::cuda
