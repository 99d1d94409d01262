#pragma once
// Memory that is planned before it exists: name every piece, commit once, never allocate again.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace holdfast::tensor {

class Arena {
 public:
  /// A planned piece; valid for the arena that planned it.
  template <class T>
  struct Piece {
    int index = -1;
  };
  struct Entry {
    std::string name;
    std::int64_t offset = 0, bytes = 0;  ///< offset from the arena's beginning
    bool used = false;                   ///< somebody asked for its address
  };
  static constexpr std::int64_t alignment = 64;          ///< bytes; every piece starts on a cache line
  static constexpr std::int64_t whole_alignment = 4096;  ///< bytes; of the arena itself

  explicit Arena(std::string name = "arena") : name_(std::move(name)) {}

  /// Plans room for `count` elements. Only before commit().
  template <class T>
  Piece<T> plan(std::string name, std::int64_t count) {
    return {add(std::move(name), count * static_cast<std::int64_t>(sizeof(T)))};
  }
  /// The one allocation, filled with zeros. An Error (runtime) says how much was asked for when there is not
  /// enough memory.
  void commit();
  /// Lies in somebody else's memory instead (a shared window, a mapped file): at least planned_bytes(),
  /// aligned to `whole_alignment`, outliving the arena. Its content is left as it is.
  void commit(std::span<std::byte> memory);
  /// From now on it lies in other memory of somebody else, of which the same is asked. Nothing is copied.
  void move_to(std::span<std::byte> memory);

  /// Address of a piece; only after commit().
  template <class T>
  T* at(Piece<T> piece) {
    return reinterpret_cast<T*>(address(piece.index));
  }
  const std::string& name() const { return name_; }
  bool committed() const { return base_ != nullptr; }
  /// Bytes of all pieces so far, gaps for alignment included: what commit() takes.
  std::int64_t planned_bytes() const { return planned_; }
  /// The same sum over the pieces that at() was called for: equal to planned_bytes() when nothing was planned
  /// in vain.
  std::int64_t used_bytes() const;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  int add(std::string name, std::int64_t bytes);
  void lie_in(std::span<std::byte> memory);
  std::byte* address(int index);

  std::string name_;
  std::vector<Entry> entries_;
  std::int64_t planned_ = 0;
  std::unique_ptr<std::byte[], Free> owned_;
  std::byte* base_ = nullptr;
};

}  // namespace holdfast::tensor
