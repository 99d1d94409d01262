#pragma once
// A disk as it may be after the power was lost: what was synced is there, and of what was not, any part. The
// weakest promise that POSIX makes; real file systems keep more than this.
//
//   what was done      and not synced by        may afterwards
//   write              fsync of the file        be there or not, each sector of it by itself
//   resize             fsync of the file        be done or not
//   create, mkdir      fsync of the folder      be there or not, whatever became of what is in it
//   rename, exchange   fsync of the folder      be done or not, but never half
//   remove             fsync of the folder      be done or not
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/traced.hpp"

namespace holdfast::checkpoint::testing {

using test::Change;

class Disk {
 public:
  /// Everything in `folder` is durable.
  explicit Disk(const std::filesystem::path& folder);

  void apply(const Change& change);

  /// What may be lost, piece by piece: so many yes or no decisions.
  std::size_t atoms() const;
  /// The tree when only the atoms `kept` survive (one per atom): path -> content, folders end in '/'.
  std::map<std::string, std::string> after(const std::vector<bool>& kept) const;
  /// As the processes see it now.
  std::map<std::string, std::string> now() const { return after(std::vector<bool>(atoms(), true)); }

 private:
  using Entries = std::map<std::string, int>;  ///< name -> node; -1: none
  struct Write {
    std::int64_t offset = 0;
    std::string data;
    std::int64_t size = -1;  ///< a resize, when not negative
  };
  struct Node {
    bool folder = false;
    std::string durable;           ///< of a file
    std::vector<Write> writes;     ///< since its last sync
    Entries entries, live;         ///< of a folder: durable, and now
    std::vector<Entries> changes;  ///< of a folder, since its last sync: what each set, all of it or nothing
  };

  int scan(const std::filesystem::path& path);
  int find(const std::string& path) const;
  void set(const std::string& path, const Entries& entries);
  static std::int64_t sector_of(const Write& write);
  static std::size_t atoms_of(const Node& node);
  template <class Keep>
  static std::string content(const Node& node, Keep keep);

  std::vector<Node> nodes_;
};

/// Puts such a tree into an empty folder.
void materialise(const std::map<std::string, std::string>& tree, const std::filesystem::path& folder);

}  // namespace holdfast::checkpoint::testing
