#pragma once
// What answers other movers: it keeps copies for them, and gives states to them.
#include <filesystem>
#include <memory>
#include <vector>

#include "src/control/secret.hpp"

namespace holdfast::launcher {

class MoverServer {
 public:
  /// `folder`: of the node's buffers; `key`: mover_key(). Listens on the port of the one before it, which
  /// other movers know; else on the first of `ports` that is free, and where none is on any other. Throws
  /// Error.
  MoverServer(std::filesystem::path folder, const control::Key& key, const std::vector<int>& ports);
  ~MoverServer();
  MoverServer(const MoverServer&) = delete;
  int port() const { return port_; }

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< its threads have it, too
  int port_ = 0;
};

/// Training comes first; but where ranks spin on every core, copies must come forward all the same.
void lower_priority_of_thread();

}  // namespace holdfast::launcher
