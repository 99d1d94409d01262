#include "launcher/agent/mover/mover_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "launcher/agent/mover/generation_files.hpp"
#include "launcher/agent/mover/interruptible.hpp"
#include "launcher/agent/mover/requests.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/control/bulk.hpp"
#include "src/control/gate.hpp"

namespace holdfast::launcher {

using control::BulkStream;
namespace fs = std::filesystem;

namespace {

constexpr Millis accept_poll{200}, accept_pause{50};
constexpr int max_guests = 64;                              // other movers at one time
constexpr control::Gate::Limits before_they_prove{16, 64};  // a thread each

files::Fd listener_on(std::vector<int> ports, const fs::path& port_before) {
  int before = 0;
  if (files::is_there(port_before)) std::istringstream(files::read_text(port_before)) >> before;
  if (before > 0) ports.insert(ports.begin(), before);
  for (const int port : ports) {
    try {
      return control::listen_on(port);
    } catch (const Error&) {  // it is taken
    }
  }
  files::Fd other = control::listen_on(0);
  if (!ports.empty())
    log::warn(
        "snapshot buffers are copied over port {}, which a firewall may stop: the agents' ports are taken",
        control::port_of(other.get()));
  return other;
}

}  // namespace

void lower_priority_of_thread() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 5); }

struct MoverServer::State {
  fs::path folder;
  control::Key key{};
  files::Fd listener;
  std::atomic<bool> over{false};
  std::atomic<int> guests{0};
  control::Gate gate{"the mover of this node", before_they_prove};
  std::mutex mutex;                        ///< of what follows
  std::map<int, std::stop_source> taking;  ///< by rank: gives up the copy of it that came last

  void accept(const std::shared_ptr<State>& self);
  void receive(files::Fd connected, control::Gate::Visit visit);
  void serve(BulkStream& stream, int socket);
  void take_copy(BulkStream& stream, int socket, const PutRequest& asked);
  void give_state(BulkStream& stream, const GetRequest& asked) const;
};

void MoverServer::State::accept(const std::shared_ptr<State>& self) {
  while (!over) {
    pollfd readable{listener.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(accept_poll.count())) <= 0) continue;
    const auto socket =
        std::make_shared<files::Fd>(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!*socket) {  // without a descriptor for it, a connection goes on to wait, and accepting it to fail
      std::this_thread::sleep_for(accept_pause);
      continue;
    }
    // It has a descriptor of its own, as the number of the other one may be that of another file by then.
    const auto to_close = std::make_shared<files::Fd>(::fcntl(socket->get(), F_DUPFD_CLOEXEC, 0));
    auto visit =
        gate.enter(control::source_of(socket->get()), [to_close] { ::shutdown(to_close->get(), SHUT_RDWR); });
    try {
      std::thread([self, socket, visit = std::move(visit)]() mutable {
        self->receive(std::move(*socket), std::move(visit));
      }).detach();
    } catch (const std::system_error& error) {
      log::warn("a request of another mover waits for a thread: {}", error.what());
    }
  }
}

void MoverServer::State::receive(files::Fd connected, control::Gate::Visit visit) {
  const int socket = connected.get();
  std::optional<BulkStream> stream;
  try {
    stream.emplace(std::move(connected), control::Session::End::server, key);
  } catch (const Error&) {
    return;  // it belongs to somebody else
  }
  visit.reset();
  ++guests;
  try {
    serve(*stream, socket);
  } catch (const std::exception& error) {
    log::info("a request of another mover failed: {}", error.what());
  }
  --guests;
}

void MoverServer::State::serve(BulkStream& stream, int socket) {
  try {
    if (guests > max_guests) throw not_moved("too many copies are under way");
    const MoverRequest asked = request_of(stream.receive());
    if (const auto* put = std::get_if<PutRequest>(&asked)) return take_copy(stream, socket, *put);
    give_state(stream, std::get<GetRequest>(asked));
  } catch (const std::exception& error) {
    stream.send(refusal_text(error.what()));
    throw;
  }
}

/// One that begins for the same rank ends this one, which may wait for a node that is lost.
void MoverServer::State::take_copy(BulkStream& stream, int socket, const PutRequest& asked) {
  lower_priority_of_thread();
  std::stop_source next_one;
  {
    const std::scoped_lock held(mutex);
    std::stop_source& known = taking[asked.rank];
    known.request_stop();
    known = next_one;
  }
  const Interruptible interruptible(next_one.get_token(), socket);
  const Seal& seal = asked.seal;
  const fs::path of_rank = folder / folder_name(asked.rank, true);
  const auto known = read_generations(of_rank);
  for (const auto& there : known)
    if (there && there->is(seal.step, seal.attempt))
      return stream.send(to_text(MoverConsent{.here = true, .seal = {}}));
  const int generation = generation_to_replace(known, seal.attempt, asked.base_step, asked.base_attempt);
  IncomingState copy(of_rank / std::to_string(generation), seal, next_one.get_token());
  stream.send(to_text(MoverConsent{}));
  copy.take(stream);
  stream.send(to_text(MoverConsent{}));
}

void MoverServer::State::give_state(BulkStream& stream, const GetRequest& asked) const {
  const auto path = find_state(folder, asked.rank, asked.step, asked.attempt);
  if (!path) throw not_moved("it is not here");
  const auto held = lock_generation(*path, LOCK_SH);
  const auto seal = read_seal(*path);
  if (!seal || !seal->is(asked.step, asked.attempt)) throw not_moved("it is not here any more");
  stream.send(to_text(MoverConsent{.here = false, .seal = *seal}));
  send_buffers(stream, *path, *seal, asked.have);
}

MoverServer::MoverServer(fs::path folder, const control::Key& key, const std::vector<int>& ports)
    : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.folder = std::move(folder);
  state.key = key;
  const fs::path known = state.folder / "port";
  state.listener = listener_on(ports, known);
  port_ = control::port_of(state.listener.get());
  files::replace_atomically(known, std::to_string(port_));
  std::thread([self = state_] { self->accept(self); }).detach();
}

MoverServer::~MoverServer() {
  state_->over = true;
  ::shutdown(state_->listener.get(), SHUT_RDWR);
}

}  // namespace holdfast::launcher
