#include "tests/sim/loop.hpp"

#include "tests/sim/world.hpp"

namespace holdfast::sim {

using namespace control;

namespace {

double seconds(Millis time) { return 1e-3 * static_cast<double>(time.count()); }

struct LoopTimer : std::enable_shared_from_this<LoopTimer> {
  LoopTimer(Timeline& t, ProcessPtr p, double s, bool r, std::function<void()> w)
      : timeline(t), process(std::move(p)), period(s), repeats(r), work(std::move(w)) {}
  void arm() {
    timeline.after(period, [process = process, weak = weak_from_this()] {
      run(process, [weak] {
        const auto self = weak.lock();
        if (!self) return;
        if (self->repeats) self->arm();
        self->work();
      });
    });
  }
  Timeline& timeline;
  ProcessPtr process;
  double period;
  bool repeats;
  std::function<void()> work;
};

class VirtualThread final : public Loop::Thread {
 public:
  VirtualThread(World& world, ProcessPtr process, bool finishes)
      : state_(std::make_shared<State>(world, std::move(process))), finishes_(finishes) {}
  VirtualThread(const VirtualThread&) = delete;
  VirtualThread& operator=(const VirtualThread&) = delete;
  ~VirtualThread() override {
    state_->owned = false;
    if (!finishes_) state_->jobs.clear();
  }
  void run(std::function<void()> work, std::function<void()> then) override {
    state_->jobs.push_back({std::move(work), std::move(then)});
    if (state_->jobs.size() == 1 && !state_->began) state_->take_next();
  }
  std::optional<Millis> busy_for() const override {
    if (!state_->began) return std::nullopt;
    return Millis(static_cast<std::int64_t>(1000 * (state_->world.timeline.now - *state_->began)));
  }

 private:
  struct Job {
    std::function<void()> work, then;
  };
  struct State : std::enable_shared_from_this<State> {
    State(World& w, ProcessPtr p) : world(w), process(std::move(p)) {}
    void take_next() {
      world.timeline.after(world.random.between(0.0005, 0.02), [self = shared_from_this()] {
        sim::run(self->process, [self] { self->begin(); });
      });
    }
    void begin() {
      if (jobs.empty()) return;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      began = world.timeline.now;
      world.do_work(process, std::move(job.work),
                    [self = shared_from_this(), then = std::move(job.then)] { self->end(then); });
    }
    void end(const std::function<void()>& then) {
      began.reset();
      if (then)
        world.timeline.after(world.random.between(0, 0.002), [self = shared_from_this(), then] {
          sim::run(self->process, [self, then] {
            if (self->owned) then();
          });
        });
      if (!jobs.empty()) take_next();
    }
    World& world;
    ProcessPtr process;
    std::deque<Job> jobs;
    std::optional<double> began;
    bool owned = true;
  };
  std::shared_ptr<State> state_;
  bool finishes_;
};

class VirtualChannel final : public Channel, public std::enable_shared_from_this<VirtualChannel> {
 public:
  VirtualChannel(World& world, ProcessPtr process, int end, int to, Handlers handlers)
      : world_(world), process_(std::move(process)), end_(end), to_(to), handlers_(std::move(handlers)) {}
  VirtualChannel(const VirtualChannel&) = delete;
  VirtualChannel& operator=(const VirtualChannel&) = delete;
  ~VirtualChannel() override { VirtualChannel::close(); }

  void dial(const std::string& door, double limit_s) {
    world_.network.dial(
        process_, to_, door, limit_s,
        [weak = weak_from_this(), &world = world_](const ConnectionPtr& connection) {
          if (const auto self = weak.lock(); self && !self->over_)
            self->opened(connection);
          else
            world.network.close(connection, 0);
        },
        [weak = weak_from_this()] {
          if (const auto self = weak.lock()) self->closed();
        });
  }
  void handle(Handlers handlers) override { handlers_ = std::move(handlers); }
  void send(std::string_view text) override {
    if (!open()) return;
    world_.maybe_interrupt(process_);
    run(process_, [&world = world_, connection = connection_, end = end_,
                   line = std::make_shared<const std::string>(text)] {
      world.sent(*connection, end, *line);
      world.network.send(connection, end, line);
    });
  }
  void close() override {
    over_ = true;
    handlers_ = {};
    if (!connection_) return;
    run(process_, [&world = world_, end = end_, connection = std::exchange(connection_, nullptr)] {
      world.network.close(connection, end);
    });
  }
  bool open() const override { return connection_ && !connection_->ends[end_].over; }
  std::optional<double> unacknowledged_s() const override {
    if (connection_) return world_.network.unanswered_s(*connection_, end_);
    if (!over_ && world_.network.takes_calls(process_->node, to_)) return 0;
    return std::nullopt;
  }

  void opened(const ConnectionPtr& connection) {
    connection_ = connection;
    auto& end = connection->ends[end_];
    end.message = [weak = weak_from_this()](const std::string& line) {
      const auto self = weak.lock();
      if (!self) return;
      if (self->end_ == 0) self->world_.heard(self->process_, self->to_, line);
      if (const auto message = self->handlers_.message) message(line);
    };
    end.closed = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->closed();
    };
    if (const auto opened = handlers_.opened) opened();
  }

 private:
  void closed() {
    over_ = true;
    connection_.reset();
    if (const auto closed = std::exchange(handlers_, {}).closed) closed("the connection is broken");
  }

  World& world_;
  ProcessPtr process_;
  int end_, to_;  ///< end: 0 of the client, 1 of the server; to: the other's node
  Handlers handlers_;
  ConnectionPtr connection_;
  bool over_ = false;
};

}  // namespace

Clock::time_point VirtualLoop::now() const {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(world_.timeline.now)));
}

std::function<double()> VirtualLoop::unix_clock() const {
  return [&world = world_, node = process_->node] { return world.unix_now(node); };
}

void VirtualLoop::post(std::function<void()> work) {
  world_.timeline.after(0, [process = process_, work = std::move(work)] { run(process, work); });
}

Loop::Handle VirtualLoop::after(Millis delay, std::function<void()> work) {
  auto timer = std::make_shared<LoopTimer>(world_.timeline, process_, seconds(delay), false, std::move(work));
  timer->arm();
  return timer;
}

Loop::Handle VirtualLoop::every(Millis period, std::function<void()> work) {
  auto timer = std::make_shared<LoopTimer>(world_.timeline, process_, seconds(period), true, std::move(work));
  timer->arm();
  return timer;
}

std::unique_ptr<Loop::Thread> VirtualLoop::thread(ThreadEnd end) {
  return std::make_unique<VirtualThread>(world_, process_, end.finishes);
}

ChannelPtr VirtualLoop::dial(Call call) {
  const int to = world_.roster.node_called(std::get<TcpAddress>(call.address).host);
  auto channel = std::make_shared<VirtualChannel>(world_, process_, 0, to, std::move(call.handlers));
  channel->dial("", seconds(call.limit));
  return channel;
}

Loop::Handle VirtualLoop::listen(Port port) {
  const auto* path = std::get_if<std::filesystem::path>(&port.address);
  auto door = std::make_shared<Network::Door>(
      process_, [&world = world_, process = process_, accepted = std::move(port.accepted)](const auto& c) {
        auto channel = std::make_shared<VirtualChannel>(world, process, 1, c->ends[0].process->node,
                                                        Channel::Handlers{});
        channel->opened(c);
        accepted(std::move(channel));
      });
  world_.network.listen(path ? path->string() : "", door);
  if (path) files::replace_atomically(*path, "");
  return Handle(door.get(), [door, at = path ? *path : ""](void*) {
    if (!at.empty() && door->process->alive) std::filesystem::remove(at);
  });
}

}  // namespace holdfast::sim
