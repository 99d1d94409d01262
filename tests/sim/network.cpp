#include "tests/sim/network.hpp"

#include "src/base/as_size.hpp"

namespace holdfast::sim {

Caller& caller() {
  static Caller now;
  return now;
}

namespace {
void call(const ProcessPtr& process, const std::function<void()>& what) {
  const Caller other = std::exchange(caller(), {nullptr, process->is_agent_of});
  what();
  caller() = other;
}
}  // namespace

void run(const ProcessPtr& process, std::function<void()> what) {
  if (!process->alive) return;
  if (process->stopped || !process->waiting.empty()) return process->waiting.push_back(std::move(what));
  call(process, what);
}

void go_on(const ProcessPtr& process) {
  process->stopped = false;
  while (process->alive && !process->stopped && !process->waiting.empty()) {
    auto what = std::move(process->waiting.front());
    process->waiting.pop_front();
    call(process, what);
  }
}

namespace {
struct Timer : std::enable_shared_from_this<Timer> {
  Timer(Timeline& t, ProcessPtr p, double s, std::function<bool()> w)
      : timeline(t), process(std::move(p)), period(s), what(std::move(w)) {}
  void arm(double seconds) {
    timeline.after(seconds, [self = shared_from_this()] {
      run(self->process, [self] {
        if (self->what()) self->arm(self->period);
      });
    });
  }
  Timeline& timeline;
  ProcessPtr process;
  double period;
  std::function<bool()> what;
};
}  // namespace

void every(Timeline& timeline, const ProcessPtr& process, double period, double first,
           std::function<bool()> what) {
  std::make_shared<Timer>(timeline, process, period, std::move(what))->arm(first);
}

Network::Network(Timeline& timeline, Random& random, int nodes)
    : timeline_(timeline),
      random_(random),
      nodes_(nodes),
      blocked_(as_size(nodes * nodes)),
      powered_(as_size(nodes), true),
      slow_links_(as_size(nodes)) {}

Network::~Network() {
  for (const auto& weak : connections_)
    if (const ConnectionPtr connection = weak.lock())
      for (Connection::End& end : connection->ends) {
        const auto waiting = std::exchange(end.process->waiting, {});
        end.message = nullptr;
        end.closed = nullptr;
      }
}

bool Network::way(int from, int to) const {
  return powered_[from] && powered_[to] && (from == to || !blocked_[at(from, to)]);
}

double Network::delay(int one, int other) {
  const double slowest = one == other ? 0.02 : std::max({slow_, slow_links_[one], slow_links_[other]});
  return random_.between(0.0005, slowest);
}

double Network::unanswered_s(Connection& c, int end) const {
  const int here = c.ends[end].process->node, there = c.ends[1 - end].process->node;
  if (way(here, there) && way(there, here)) c.ends[end].answered = timeline_.now;
  return timeline_.now - c.ends[end].answered;
}

bool Network::takes_calls(int from, int to) const {
  if (!way(from, to) || !way(to, from)) return false;
  return door(to, "") != nullptr;
}

/// Null: nobody listens there.
std::shared_ptr<Network::Door> Network::door(int node, const std::string& name) const {
  const auto known = doors_.find({node, name});
  const auto door = known == doors_.end() ? nullptr : known->second.lock();
  return door && door->process->alive ? door : nullptr;
}

void Network::listen(const std::string& name, const std::shared_ptr<Door>& door) {
  doors_[{door->process->node, name}] = door;
}

void Network::schedule(const ConnectionPtr& c, int end, Line what) {
  auto& to = c->ends[end];
  to.last = std::max(to.last, timeline_.now + delay(c->ends[0].process->node, c->ends[1].process->node));
  timeline_.at(to.last, [this, c, end, what = std::move(what)] { arrive(c, end, what); });
}

void Network::arrive(const ConnectionPtr& c, int end, Line what) {
  auto& to = c->ends[end];
  if (to.over || !to.process->alive) return;
  to.held.push_back(std::move(what));
  if (!way(c->ends[1 - end].process->node, to.process->node)) return;
  to.answered = timeline_.now;
  for (auto& next : std::exchange(to.held, {}))
    run(to.process, [c, end, next = std::move(next)] {
      auto& here = c->ends[end];
      if (here.over) return;
      if (next) {
        if (const auto handler = here.message) handler(*next);
        return;
      }
      here.over = true;
      here.message = nullptr;
      if (const auto closed = std::exchange(here.closed, nullptr)) closed();
    });
}

void Network::send(const ConnectionPtr& c, int from, Line what) {
  if (c->ends[from].over) return;
  schedule(c, 1 - from, std::move(what));
}

void Network::close(const ConnectionPtr& c, int end) {
  auto& here = c->ends[end];
  if (here.over) return;
  schedule(c, 1 - end, nullptr);
  here.over = true;
  here.message = nullptr;
  here.closed = nullptr;
}

void Network::reset(const ConnectionPtr& c) {
  for (int end = 0; end < 2; ++end) {
    auto& to = c->ends[end];
    if (to.over) continue;
    to.message = nullptr;  // messages in flight are lost
    to.held.clear();
    schedule(c, end, nullptr);
  }
}

void Network::reset_some(int count) {
  std::erase_if(connections_, [](const auto& c) { return c.expired(); });
  for (int i = 0; i < count && !connections_.empty(); ++i)
    if (const auto c = connections_[random_.below(static_cast<int>(connections_.size()))].lock()) reset(c);
}

void Network::flush(double broken_share) {
  std::erase_if(connections_, [](const auto& c) { return c.expired(); });
  for (const auto& weak : connections_) {
    const auto c = weak.lock();
    if (!c) continue;
    for (int end = 0; end < 2; ++end) {
      auto& to = c->ends[end];
      if (to.held.empty() || !way(c->ends[1 - end].process->node, to.process->node)) continue;
      if (random_.chance(broken_share)) {
        reset(c);
        break;
      }
      for (auto& what : std::exchange(to.held, {})) schedule(c, end, std::move(what));
    }
  }
}

void Network::process_died(const ProcessPtr& process) {
  for (const auto& weak : connections_) {
    const auto c = weak.lock();
    if (!c) continue;
    for (int end = 0; end < 2; ++end)
      if (c->ends[end].process == process) {
        schedule(c, 1 - end, nullptr);
        c->ends[end].over = true;
        c->ends[end].message = nullptr;
        c->ends[end].closed = nullptr;
      }
  }
}

void Network::dial(const ProcessPtr& client, int to, const std::string& name, double limit_s,
                   std::function<void(const ConnectionPtr&)> opened, std::function<void()> failed) {
  const auto settled = std::make_shared<bool>(false);
  const auto fail = [client, settled, failed = std::move(failed)] {
    if (!std::exchange(*settled, true)) run(client, failed);
  };
  timeline_.after(limit_s, fail);
  timeline_.after(delay(client->node, to),
                  [this, client, to, name, settled, fail, opened = std::move(opened)] {
                    if (!way(client->node, to) || !way(to, client->node)) return;
                    const auto server = door(to, name);
                    if (!server) return fail();
                    run(server->process, [this, client, server, settled, opened] {
                      if (!client->alive || std::exchange(*settled, true)) return;
                      const auto c = std::make_shared<Connection>();
                      c->ends[0].process = client;
                      c->ends[1].process = server->process;
                      c->ends[0].answered = c->ends[1].answered = timeline_.now;
                      connections_.push_back(c);
                      server->accept(c);
                      run(client, [c, opened] { opened(c); });
                    });
                  });
}

}  // namespace holdfast::sim
