#pragma once
// One context and one worker of UCX with endpoints to the ranks that it was told of: messages by tag, and
// what became of them. Used by one thread at a time. Its settings are its own; UCX's environment variables
// (and what the MPI library does with UCX in this process) stay as they are.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/comm/ucx_choice.hpp"

namespace holdfast::comm {

/// What UCX finds on this machine.
std::vector<UcxTransport> ucx_transports();

/// A message on its way. Stays where it is until it comes back from UcxWorker::finished.
struct UcxMessage {
  void* request = nullptr;
  bool done = false;
  const char* failure = nullptr;  ///< UCX's words, or nothing
  std::size_t bytes = 0;          ///< that came; of a receive
  void* worker = nullptr;         ///< whose it is
};

class UcxWorker {
 public:
  /// Throws Error (runtime) with UCX's words.
  explicit UcxWorker(const UcxChoice& choice);
  /// By force: messages that are under way end here, and their memory is not touched any more.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  /// What another rank must know to connect to this one.
  const std::vector<std::byte>& address() const;

  /// The endpoint to `rank`, made when it is new. Returns its lanes ("way/device"); empty when it was there.
  /// Throws Error (runtime) when no chosen transport leads there.
  std::set<std::string> connect(int rank, std::span<const std::byte> address);
  /// UCX's words when the connection to `rank` has failed, else nothing.
  const char* lost(int rank) const;

  void send(int rank, std::uint64_t tag, std::span<const std::byte> bytes, UcxMessage& message);
  void receive(std::uint64_t tag, std::span<std::byte> bytes, UcxMessage& message);

  /// Moves what can be moved; false when that was nothing.
  bool progress();
  /// Messages that have ended since the last call.
  std::vector<UcxMessage*> finished();
  /// Sleeps until something can be moved, `wake` (a descriptor) is readable, or the time is over.
  void sleep(int wake, std::chrono::milliseconds limit);
  /// All that was sent has left for its rank, or the time is over.
  void flush(std::chrono::milliseconds limit);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::comm
