#pragma once
// Processes that can be stopped and killed, and connections between them: lines of text arrive in order, are
// lost with a reset, and are held back while the network is cut (as in TCP), each direction by itself.
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "tests/sim/timeline.hpp"

namespace holdfast::sim {

class World;
struct Work;

/// Who makes calls to storage now. Neither: the simulator itself.
struct Caller {
  Work* work = nullptr;    ///< of a thread of a process
  World* agent = nullptr;  ///< the process's own thread, which must not wait, of an agent of this world
};
Caller& caller();
/// The simulator's own calls, in the midst of what a process does.
class Aside {
 public:
  Aside() : other_(std::exchange(caller(), {})) {}
  ~Aside() { caller() = other_; }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  Caller other_;
};

/// Its events wait while it is stopped, and are dropped when it is dead.
struct Process {
  explicit Process(int n) : node(n) {}
  int node;
  int term = 0;  ///< the last that it has led
  World* is_agent_of = nullptr;
  bool alive = true, stopped = false;
  std::deque<std::function<void()>> waiting;
};
using ProcessPtr = std::shared_ptr<Process>;

void run(const ProcessPtr& process, std::function<void()> what);
void go_on(const ProcessPtr& process);  ///< after a stop: the waiting events happen now, in order
/// Calls `what` every `period` seconds until it returns false or the process dies. Calls that a stop has
/// prevented are not made up for.
void every(Timeline& timeline, const ProcessPtr& process, double period, double first,
           std::function<bool()> what);

/// What is sent; null: the close.
using Line = std::shared_ptr<const std::string>;

struct Connection {
  struct End {
    ProcessPtr process;
    std::function<void(const std::string&)> message;
    std::function<void()> closed;
    bool over = false;      ///< it has closed, or knows that the other has
    double last = 0;        ///< when the last line to it arrives
    double answered = 0;    ///< when the other end's kernel was last known to answer
    std::deque<Line> held;  ///< held back by a cut
  };
  std::array<End, 2> ends;  ///< client, server
  int term = 0;             ///< that its client has said it leads
};
using ConnectionPtr = std::shared_ptr<Connection>;

class Network {
 public:
  Network(Timeline& timeline, Random& random, int nodes);
  /// What a stopped process still has to hear keeps its connection, and that the process: forgotten here.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool way(int from, int to) const;
  void set_way(int from, int to, bool open) { blocked_[at(from, to)] = !open; }
  void power(int node, bool on) { powered_[node] = on; }
  /// After a cut has ended: messages held back arrive, or their connection is found broken.
  void flush(double broken_share);
  void slow(double seconds) { slow_ = seconds; }  ///< the maximum delay of a line
  void slow_link(int node, double seconds) { slow_links_[node] = seconds; }

  void send(const ConnectionPtr& connection, int from_end, Line what);
  void close(const ConnectionPtr& connection, int end);
  void reset(const ConnectionPtr& connection);
  void reset_some(int count);
  /// The kernel of a live node resets the connections of a dead process.
  void process_died(const ProcessPtr& process);

  /// Seconds since the kernel at the other end has answered.
  double unanswered_s(Connection& connection, int end) const;
  /// A process listens there, and its node answers this one.
  bool takes_calls(int from, int to) const;

  /// A port of TCP ("") or a Unix socket of a node: whoever listens there last has it.
  struct Door {
    ProcessPtr process;
    std::function<void(const ConnectionPtr&)> accept;
  };
  void listen(const std::string& name, const std::shared_ptr<Door>& door);
  void dial(const ProcessPtr& client, int to, const std::string& door, double limit_s,
            std::function<void(const ConnectionPtr&)> opened, std::function<void()> failed);

 private:
  std::size_t at(int from, int to) const { return as_size(from * nodes_ + to); }
  double delay(int one, int other);
  void arrive(const ConnectionPtr& connection, int end, Line what);
  void schedule(const ConnectionPtr& connection, int end, Line what);
  std::shared_ptr<Door> door(int node, const std::string& name) const;
  Timeline& timeline_;
  Random& random_;
  int nodes_;
  double slow_ = 0.02;
  std::vector<bool> blocked_, powered_;
  std::vector<double> slow_links_;  ///< by node
  std::vector<std::weak_ptr<Connection>> connections_;
  std::map<std::pair<int, std::string>, std::weak_ptr<Door>> doors_;  ///< by node and name
};

}  // namespace holdfast::sim
