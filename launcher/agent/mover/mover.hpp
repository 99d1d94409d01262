#pragma once
// What copies the snapshot buffers of this node's ranks to a partner node, and fetches those of ranks that
// are to run here; its server keeps a partner's. In threads of their own, so that they neither wait for the
// agent's loop nor hold it up; with a low priority while ranks train.
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/mover/mover_server.hpp"
#include "src/base/as_size.hpp"
#include "src/base/run_dir.hpp"
#include "src/control/loop.hpp"
#include "src/control/message.hpp"
#include "src/control/secret.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

/// The folder of this node's snapshot buffers.
std::filesystem::path buffers_folder(const std::filesystem::path& local_level, const std::string& node);

/// Threads for work on the states of ranks: that of one rank is done in order, one after the other, and that
/// of a node's ranks at once.
class RankWorkers {
 public:
  explicit RankWorkers(control::Loop& loop) {
    for (int i = 0; i < threads; ++i) workers_.emplace_back(loop, shutdown_limit);
  }
  control::Worker& of(int rank) { return workers_[as_size(rank) % workers_.size()]; }

 private:
  static constexpr int threads = 8;             // a node's ranks are neighbours: each of eight has one
  static constexpr Millis shutdown_limit{125};  // of each
  std::deque<control::Worker> workers_;
};

class Mover {
 public:
  /// Another node's mover. Port 0: there is none.
  struct Place {
    std::vector<std::string> hosts;
    int port = 0;
    bool operator==(const Place&) const = default;
  };
  /// The attempt whose ranks run here: where their buffers are copied to, and the state that they began with.
  struct Attempt {
    int number = 0;
    Place partner;
    std::vector<int> ranks = {};
    std::int64_t base_step = -1;
    int base_attempt = 0;
  };
  struct Source {
    int rank = -1;
    Place from;
    bool operator==(const Source&) const = default;
  };

  /// Listens, and makes the folder; what another run has left in it is removed. What a mover before this one
  /// was told of the attempt is known again. `ports`: to listen on (MoverServer). Throws Error.
  Mover(control::Loop& loop, std::filesystem::path folder, const control::Key& secret,
        const std::vector<int>& ports = {});
  ~Mover();
  Mover(const Mover&) = delete;

  int port() const { return server_->port(); }
  std::filesystem::path folder_of(int rank) const;
  /// Of the file system that the buffers lie in, used or not; 0: it does not say.
  std::int64_t memory_bytes() const;
  std::vector<control::SealedState> sealed() const;
  /// Why there are no copies at present; "": nothing has failed. A failure is told for at least a minute, so
  /// that the event log has no line for each of many short ones.
  std::string copies_off() const;

  /// What the attempt cannot come back from is removed, to make room; copies of the one before and fetches
  /// are given up.
  void begin(const Attempt& attempt);
  /// Copies what the rank would come back from to the partner, if it is not there: its newest seal of this
  /// attempt, or the state that it began with.
  void copy(int rank);
  /// The first rank whose state cannot be had, and why; -1: all are there.
  struct Fetched {
    int rank = -1;
    std::string why = {};
    bool no_room = false;  ///< this node cannot keep it, and another one may
  };
  /// Has the state (step, attempt) of these ranks here, and gives up what else is being fetched. `then` is
  /// called in the loop's thread, when all of them are there or one cannot be had; not when they are given
  /// up.
  void fetch(const std::vector<Source>& sources, std::int64_t step, int attempt,
             std::function<void(const Fetched&)> then);
  /// Their threads are free at once, but for one that is just connecting (2 s an address); nothing is left of
  /// what they have got.
  void give_up_fetches();

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< threads that wait for another node have it, too
  std::optional<MoverServer> server_;
  RankWorkers copiers_, fetchers_;
};

}  // namespace holdfast::launcher
