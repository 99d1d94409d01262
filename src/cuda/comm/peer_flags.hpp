#pragma once
// How ranks of one node tell each other's streams how far they are: a table of words in host memory that all
// of them have mapped and registered with their GPUs.
//
// Row r belongs to member r: the others write into it ("member m is ready for operation n", "m is done with
// n"), and only r's streams wait for words in it. So a rank that has to let its streams go writes its own row
// alone, and nobody else takes that for news. Words hold operation numbers, modulo 2^32; they only grow.
//
// Beside the words: what each member is about to do (a digest per operation), and the obituary: who has given
// the group up first, and why.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/comm/shared_memory.hpp"
#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda {

class PeerFlags {
 public:
  enum class Flag {
    ready,  ///< what it brings may be read
    done,   ///< it has read what it wanted
  };

  /// Of shared memory that is zeroed before the first member has it.
  static std::int64_t bytes_for(int members);
  PeerFlags(Runtime& runtime, comm::SharedMemory memory, int members, int me);
  /// Nothing on the GPU comes back to the words, unless leave() was called.
  ~PeerFlags();
  PeerFlags(const PeerFlags&) = delete;
  PeerFlags& operator=(const PeerFlags&) = delete;

  // On a stream
  /// Tells all others, behind all work so far.
  void announce(StreamHandle stream, Flag flag, std::uint64_t number);
  /// Later work starts when `member` has announced it.
  void await(StreamHandle stream, Flag flag, int member, std::uint64_t number);

  // On the host
  bool heard(Flag flag, int member, std::uint64_t number) const;
  /// My streams wait for none of the operations up to `newest`.
  void release(std::uint64_t newest) noexcept;
  void post(std::uint64_t number, std::uint64_t what);
  /// Nothing when `member` has not posted it yet, or not any more.
  std::optional<std::uint64_t> posted(int member, std::uint64_t number) const;

  struct Obituary {
    int member = 0;  ///< who gave up
    std::string why;
  };
  /// The first one counts.
  void give_up(std::string_view why) noexcept;
  std::optional<Obituary> obituary() const;

  /// The words stay where they are for ever: a stream may still look at them.
  void leave() noexcept { left_ = true; }

 private:
  struct Head;
  struct Post;
  std::int64_t word_at(Flag flag, int row, int member) const;
  const std::uint32_t* word(Flag flag, int row, int member) const;
  Head& head() const;
  Post& post_of(int member, std::uint64_t number) const;

  Runtime& runtime_;
  comm::SharedMemory memory_;
  const int members_, me_;
  std::byte* gpu_ = nullptr;  // the same memory as the GPU addresses it
  bool left_ = false;
};

}  // namespace holdfast::cuda
