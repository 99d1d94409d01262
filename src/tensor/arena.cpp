#include "src/tensor/arena.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::tensor {

namespace {
std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

void Arena::Free::operator()(std::byte* memory) const { std::free(memory); }

int Arena::add(std::string name, std::int64_t bytes) {
  expects(!committed(), "a piece is planned before its arena is committed");
  expects(bytes >= 0, "a piece has at least 0 bytes");
  entries_.push_back({std::move(name), planned_, bytes});
  planned_ += round_up(bytes, alignment);
  return static_cast<int>(entries_.size()) - 1;
}

void Arena::commit() {
  expects(!committed(), "an arena is committed once");
  // Huge pages where they pay: products and copies then miss the TLB less.
  constexpr std::int64_t huge_page = 2 << 20;
  const std::int64_t unit = planned_ >= huge_page ? huge_page : whole_alignment;
  const auto bytes = as_size(round_up(std::max<std::int64_t>(planned_, 1), unit));
  owned_.reset(static_cast<std::byte*>(std::aligned_alloc(as_size(unit), bytes)));
  if (!owned_)
    throw Error(Exit::runtime, fmt::format("no memory for {} ({} bytes)", name_, bytes), {},
                "use a smaller micro-batch or sequence, or more ranks per shard group?");
  if (unit == huge_page) ::madvise(owned_.get(), bytes, MADV_HUGEPAGE);  // only a hint
  std::memset(owned_.get(), 0, bytes);
  base_ = owned_.get();
}

void Arena::commit(std::span<std::byte> memory) {
  expects(!committed(), "an arena is committed once");
  lie_in(memory);
}

void Arena::move_to(std::span<std::byte> memory) {
  expects(committed() && !owned_, "an arena that lies in somebody else's memory can move");
  lie_in(memory);
}

void Arena::lie_in(std::span<std::byte> memory) {
  expects(static_cast<std::int64_t>(memory.size()) >= planned_, "the memory holds all planned pieces");
  expects(reinterpret_cast<std::uintptr_t>(memory.data()) % whole_alignment == 0,
          "the memory is aligned to a page");
  base_ = memory.data();
}

std::byte* Arena::address(int index) {
  expects(committed(), "an arena is committed before its pieces are used");
  expects(index >= 0 && index < static_cast<int>(entries_.size()), "the piece belongs to this arena");
  Entry& entry = entries_[index];
  entry.used = true;
  return base_ + entry.offset;
}

std::int64_t Arena::used_bytes() const {
  std::int64_t sum = 0;
  for (const auto& entry : entries_)
    if (entry.used) sum += round_up(entry.bytes, alignment);
  return sum;
}

}  // namespace holdfast::tensor
