#include "src/cuda/comm/peer_flags.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "src/base/clock.hpp"
#include "src/cuda/comm/bulk_group.hpp"

namespace holdfast::cuda {
namespace {
constexpr std::int64_t line = 64;        // bytes that two writers would share
constexpr std::uint32_t far = 1u << 30;  // ahead of what is waited for, and not behind it modulo 2^32
constexpr std::uint64_t posts = 2 * BulkGroup::places;
}  // namespace

struct PeerFlags::Head {
  std::atomic<std::uint32_t> claimed;  ///< 1 + who gives up; from here on nothing of the group is good
  std::atomic<std::uint32_t> written;  ///< `why` is complete
  char why[1000];
};

struct PeerFlags::Post {
  std::atomic<std::uint64_t> number, what;
};

std::int64_t PeerFlags::bytes_for(int members) {
  return static_cast<std::int64_t>(comm::page_bytes) + members * members * 2 * line +
         members * static_cast<std::int64_t>(posts * sizeof(Post));
}

PeerFlags::PeerFlags(Runtime& runtime, comm::SharedMemory memory, int members, int me)
    : runtime_(runtime), memory_(std::move(memory)), members_(members), me_(me) {
  static_assert(sizeof(Head) <= comm::page_bytes);
  const auto bytes = comm::round_to_pages(memory_.bytes().size());
  gpu_ = static_cast<std::byte*>(
      runtime_.host_register(memory_.bytes().data(), static_cast<std::int64_t>(bytes)));
}

PeerFlags::~PeerFlags() {
  if (!left_)
    runtime_.host_unregister(memory_.bytes().data());
  else
    new comm::SharedMemory(std::move(memory_));  // mapped until the process ends
}

std::int64_t PeerFlags::word_at(Flag flag, int row, int member) const {
  return static_cast<std::int64_t>(comm::page_bytes) +
         ((row * members_ + member) * 2 + (flag == Flag::done)) * line;
}

const std::uint32_t* PeerFlags::word(Flag flag, int row, int member) const {
  return reinterpret_cast<const std::uint32_t*>(memory_.bytes().data() + word_at(flag, row, member));
}

PeerFlags::Head& PeerFlags::head() const { return *reinterpret_cast<Head*>(memory_.bytes().data()); }

PeerFlags::Post& PeerFlags::post_of(int member, std::uint64_t number) const {
  std::byte* all = memory_.bytes().data() + word_at(Flag::ready, members_, 0);
  return reinterpret_cast<Post*>(all)[static_cast<std::uint64_t>(member) * posts + number % posts];
}

void PeerFlags::announce(StreamHandle stream, Flag flag, std::uint64_t number) {
  for (int distance = 1; distance < members_; ++distance) {
    std::byte* there = gpu_ + word_at(flag, (me_ + distance) % members_, me_);
    runtime_.write_word(stream, reinterpret_cast<std::uint32_t*>(there), static_cast<std::uint32_t>(number));
  }
}

void PeerFlags::await(StreamHandle stream, Flag flag, int member, std::uint64_t number) {
  runtime_.wait_word(stream, reinterpret_cast<const std::uint32_t*>(gpu_ + word_at(flag, me_, member)),
                     static_cast<std::uint32_t>(number));
}

bool PeerFlags::heard(Flag flag, int member, std::uint64_t number) const {
  return reached(read_word(word(flag, me_, member)), number);
}

void PeerFlags::release(std::uint64_t newest) noexcept {
  for (int member = 0; member < members_; ++member)
    for (const Flag flag : {Flag::ready, Flag::done})
      std::atomic_ref(*const_cast<std::uint32_t*>(word(flag, me_, member)))
          .store(static_cast<std::uint32_t>(newest) + far, std::memory_order_release);
}

void PeerFlags::post(std::uint64_t number, std::uint64_t what) {
  // A reader takes `what` only between two looks at the same number.
  Post& post = post_of(me_, number);
  post.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  post.what.store(what, std::memory_order_relaxed);
  post.number.store(number, std::memory_order_release);
}

std::optional<std::uint64_t> PeerFlags::posted(int member, std::uint64_t number) const {
  const Post& post = post_of(member, number);
  if (post.number.load(std::memory_order_acquire) != number) return std::nullopt;
  const std::uint64_t what = post.what.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (post.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  return what;
}

void PeerFlags::give_up(std::string_view why) noexcept {
  Head& head = this->head();
  std::uint32_t nobody = 0;
  if (!head.claimed.compare_exchange_strong(nobody, static_cast<std::uint32_t>(me_) + 1)) return;
  const std::size_t length = std::min(why.size(), sizeof head.why - 1);
  std::memcpy(head.why, why.data(), length);
  head.written.store(1, std::memory_order_release);
}

std::optional<PeerFlags::Obituary> PeerFlags::obituary() const {
  const Head& head = this->head();
  const std::uint32_t claimed = head.claimed.load(std::memory_order_acquire);
  if (claimed == 0) return std::nullopt;
  // A few instructions away, unless its writer has been killed between the two.
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(20));
  while (head.written.load(std::memory_order_acquire) == 0 && !deadline.passed()) std::this_thread::yield();
  const bool written = head.written.load(std::memory_order_acquire) != 0;
  return Obituary{static_cast<int>(claimed) - 1, written ? std::string(head.why) : std::string()};
}

}  // namespace holdfast::cuda
