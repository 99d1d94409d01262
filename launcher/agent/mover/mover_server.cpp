#include "launcher/agent/mover/mover_server.hpp"

#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "launcher/agent/mover/generation_files.hpp"
#include "launcher/agent/mover/interruptible.hpp"
#include "launcher/agent/mover/requests.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/control/bulk.hpp"

namespace holdfast::launcher {

using control::BulkStream;
namespace fs = std::filesystem;

namespace {

constexpr Millis accept_poll{200};
constexpr int max_guests = 64;  // connections of other movers at one time

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
  std::mutex mutex;                        ///< of what follows
  std::map<int, std::stop_source> taking;  ///< by rank: gives up the copy of it that came last

  void accept(const std::shared_ptr<State>& self);
  void serve(files::Fd connected);
  void take_copy(BulkStream& stream, int socket, const PutRequest& asked);
  void give_state(BulkStream& stream, const GetRequest& asked) const;
};

void MoverServer::State::accept(const std::shared_ptr<State>& self) {
  while (!over) {
    pollfd readable{listener.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(accept_poll.count())) <= 0) continue;
    files::Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket || guests >= max_guests) continue;
    ++guests;
    std::thread([self, fd = socket.release()] {
      try {
        self->serve(files::Fd(fd));
      } catch (const std::exception& error) {
        log::info("a request of another mover failed: {}", error.what());
      }
      --self->guests;
    }).detach();
  }
}

void MoverServer::State::serve(files::Fd connected) {
  const int socket = connected.get();
  BulkStream stream(std::move(connected), control::Session::End::server, key);
  try {
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
  send_buffers(stream, *path, *seal);
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
