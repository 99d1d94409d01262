#pragma once
// The files of snapshot buffers in the folder of a node: under the lock of their generation they are sent,
// taken from another node, and removed.
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "launcher/agent/mover/seals.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/control/bulk.hpp"

namespace holdfast::launcher {

/// Transient.
Error not_moved(const std::string& why);

/// This node cannot keep a state. Another one may.
struct NoRoom : Error {
  explicit NoRoom(const std::exception& error)
      : Error(Exit::transient, "a state has no room on this node", error.what()) {}
};

/// A folder of a generation, locked as long as this lives; `how`: as of flock(). Throws Error when it is not
/// free for 10 s, or the wait is given up.
files::Fd lock_generation(const std::filesystem::path& generation, int how,
                          const std::stop_token& given_up = {});

/// The buffers of a generation whose lock is held, but for those that the other end has.
void send_buffers(control::BulkStream& stream, const std::filesystem::path& generation, const Seal& seal,
                  const std::vector<std::string>& have = {});
/// The buffers in a generation that are what a seal says. Throws Error.
std::vector<std::string> whole_buffers(const std::filesystem::path& generation, const Seal& seal,
                                       const std::stop_token& given_up);

/// A generation that is being written: it is locked, has no seal, and has room for all buffers. What has not
/// been sealed at the end of this gives its memory back.
class IncomingState {
 public:
  /// `have`: buffers that lie there already. Throws NoRoom.
  IncomingState(const std::filesystem::path& generation, const Seal& seal,
                const std::stop_token& given_up = {}, std::vector<std::string> have = {});
  ~IncomingState();
  IncomingState(const IncomingState&) = delete;
  /// Takes the other buffers, and seals them when all of them are right. Throws Error.
  void take(control::BulkStream& stream);

 private:
  bool is_buffer(const std::string& name) const;
  void reserve(const Seal::Buffer& buffer);
  void write_seal() const;
  void clear() const noexcept;

  const std::filesystem::path generation_;
  const Seal seal_;
  const std::vector<std::string> have_;
  files::Fd held_;
  std::vector<files::Fd> open_;
  bool sealed_ = false;
};

/// Where a state lies in the folder of a node.
std::optional<std::filesystem::path> find_state(const std::filesystem::path& folder, int rank,
                                                std::int64_t step, int attempt);

/// Gives the memory of a generation back, unless it is being written or read, or its seal is of use.
void remove_unless(const std::filesystem::path& generation, const std::function<bool(const Seal&)>& of_use);

}  // namespace holdfast::launcher
