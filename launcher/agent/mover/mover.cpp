#include "launcher/agent/mover/mover.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "launcher/agent/mover/requests.hpp"
#include "launcher/agent/mover/seals.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/control/bulk.hpp"

namespace holdfast::launcher {

using control::BulkStream;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr Millis lock_patience{10000}, lock_poll{2}, accept_poll{200};
constexpr int max_guests = 64;               // connections of other movers at one time
constexpr Millis rest_after_failure{30000};  // a partner that does not answer must not hold up every step

Error give_up(const std::string& why) { return {Exit::transient, "a state is not moved", why}; }

/// This node cannot keep a state. Another one may.
struct NoRoom : Error {
  explicit NoRoom(const std::exception& error)
      : Error(Exit::transient, "a state has no room on this node", error.what()) {}
};

/// Training comes first; but where ranks spin on every core, copies must come forward all the same.
void low_priority() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 5); }

/// A folder of a generation, locked as long as this lives.
files::Fd lock(const fs::path& generation, int how) {
  files::Fd fd = files::open(generation, O_RDONLY | O_DIRECTORY);
  const auto limit = Deadline::in(lock_patience);
  while (::flock(fd.get(), how | LOCK_NB) != 0) {
    if (limit.passed()) throw give_up("it is being written, or read by another one, for too long");
    std::this_thread::sleep_for(lock_poll);
  }
  return fd;
}

std::string buffer_file(const Seal::Buffer& buffer) { return buffer.name + ".buffer"; }

/// The buffers of a generation whose lock is held.
void send_buffers(BulkStream& stream, const fs::path& generation, const Seal& seal) {
  for (const auto& buffer : seal.buffers)
    stream.send_bytes(files::open(generation / buffer_file(buffer), O_RDONLY | O_NOFOLLOW).get(),
                      buffer.bytes);
}

/// A generation that is being written: it is locked, has no seal, and has room for all buffers. What has not
/// been sealed at the end of this gives its memory back.
class Incoming {
 public:
  /// Throws NoRoom.
  Incoming(const fs::path& generation, const Seal& seal) : generation_(generation), seal_(seal) {
    try {
      fs::create_directories(generation);
      held_ = lock(generation, LOCK_EX);
      fs::remove(generation / "seal");
      for (const auto& name : files::list(generation))  // of another program's buffers
        if (!is_buffer(name)) fs::remove(generation / name);
      for (const auto& buffer : seal.buffers) reserve(buffer);
    } catch (const std::exception& error) {
      clear();
      throw NoRoom(error);
    }
  }
  ~Incoming() {
    if (!sealed_) clear();
  }
  Incoming(const Incoming&) = delete;

  void take(BulkStream& stream) {
    for (std::size_t i = 0; i < open_.size(); ++i) {
      std::uint32_t crc = 0;
      stream.receive_bytes(open_[i].get(), seal_.buffers[i].bytes, [&](std::span<const std::byte> part) {
        crc = crc32_of(crc, part.data(), part.size());
      });
      if (crc != seal_.buffers[i].crc)
        throw give_up(fmt::format("the checksum of {} does not hold", seal_.buffers[i].name));
    }
    try {
      write_seal();
    } catch (const std::exception& error) {
      throw NoRoom(error);
    }
    sealed_ = true;
  }

 private:
  bool is_buffer(const std::string& name) const {
    return std::any_of(seal_.buffers.begin(), seal_.buffers.end(),
                       [&](const auto& buffer) { return buffer_file(buffer) == name; });
  }
  void reserve(const Seal::Buffer& buffer) {
    const fs::path path = generation_ / buffer_file(buffer);
    open_.push_back(files::open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    int error = ::ftruncate(open_.back().get(), buffer.bytes) != 0 ? errno : 0;
    if (error == 0) error = files::reserve(open_.back().get(), buffer.bytes);
    if (error != 0) throw system_error("there is no memory for " + path.string(), error);
  }
  void write_seal() const {
    const fs::path aside = generation_ / "seal.new";
    const std::string text = to_text(seal_);
    const files::Fd file = files::open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    files::write_all(file.get(), text.data(), text.size(), 0, aside);
    fs::rename(aside, generation_ / "seal");
  }
  void clear() const noexcept {
    if (!held_) return;  // somebody else's
    std::error_code stays;
    for (const auto& name : files::list(generation_)) fs::remove(generation_ / name, stays);
  }

  const fs::path generation_;
  const Seal seal_;
  files::Fd held_;
  std::vector<files::Fd> open_;
  bool sealed_ = false;
};

/// Where a state lies in the folder of a node.
std::optional<fs::path> find_state(const fs::path& folder, int rank, std::int64_t step, int attempt) {
  for (const bool copy : {false, true})
    for (const char* generation : {"0", "1"}) {
      const fs::path path = folder / folder_name(rank, copy) / generation;
      if (const auto seal = read_seal(path); seal && seal->is(step, attempt)) return path;
    }
  return std::nullopt;
}

void make_private(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw system_error("cannot create " + folder.string(), errno);
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) || facts.st_uid != ::getuid() ||
      (facts.st_mode & 077) != 0)
    throw Error(Exit::runtime, "cannot use " + folder.string(),
                "it exists and is not this user's private folder", "Remove it?");
}

/// The rank waits at its seal until this is written: then its state is at the partner, or it is not to be had
/// there.
void deal_with(const fs::path& of_rank, int attempt, std::int64_t step) {
  const fs::path path = of_rank / "copied";
  const std::string text = fmt::format("{} {}\n", attempt, step);
  try {
    files::replace_atomically(path, text);
  } catch (const Error&) {
    // Without memory for another file, the one that is there is written over, which needs none.
    const files::Fd file = files::open(path, O_WRONLY | O_NOFOLLOW);
    files::write_all(file.get(), text.data(), text.size(), 0, path);
    if (::ftruncate(file.get(), std::ssize(text)) != 0)
      throw system_error("cannot cut " + path.string(), errno);
  }
}

std::set<int> ranks_in(const fs::path& folder) {
  std::set<int> ranks;
  for (const auto& name : files::list(folder))
    if (const auto of = folder_called(name)) ranks.insert(of->first);
  return ranks;
}

std::string text_or_nothing(const fs::path& path) {
  return files::is_there(path) ? files::read_text(path) : std::string();
}

}  // namespace

fs::path buffers_folder(const std::string& local, const RunDir& run, const std::string& node) {
  return local_level_folder(local == "auto" ? "/dev/shm" : local, run.path) / ("buffers-" + node);
}

struct Mover::State {
  fs::path folder;
  control::Key secret{};
  files::Fd listener;
  std::atomic<bool> over{false};
  std::atomic<int> guests{0};

  std::mutex mutex;  ///< of what follows
  Attempt attempt;
  std::map<int, std::pair<int, std::int64_t>> copied;  ///< by rank: (attempt, step) that its partner has
  std::set<int> queued;                                ///< ranks whose newest state is to be copied
  std::set<int> copying_over;                          ///< sockets of the copies that are being made
  std::optional<Clock::time_point> rests_until;        ///< after a failure
  std::map<int, int> taking;                           ///< by rank: the socket over which its copy comes

  class Interruptible;
  class Taking;
  /// What a rank would come back from.
  struct Newest {
    fs::path generation;
    Seal seal;
  };
  void serve(files::Fd connected);
  void take_copy(BulkStream& stream, int socket, const PutRequest& asked);
  void give_state(BulkStream& stream, const GetRequest& asked) const;
  void accept(const std::shared_ptr<State>& self);
  void copy(int rank);
  std::optional<Newest> newest_of(int rank, const Attempt& now) const;
  void copy_to_partner(int rank, const Attempt& now, const Newest& newest);
  bool has_copy(int rank, const Seal& seal);
  void make_room(int rank);
  void make_room_for_word(int rank) const;
  void end_copies();
  void fetch(const Source& source, std::int64_t step, int attempt);
};

/// One that begins for the same rank ends this one, which may wait for a node that is lost.
class Mover::State::Taking {
 public:
  Taking(State& state, int rank, int socket)
      : state_(state), rank_(rank), socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)) {
    const std::scoped_lock held(state_.mutex);
    int& known = state_.taking.try_emplace(rank, -1).first->second;
    if (known >= 0) ::shutdown(known, SHUT_RDWR);
    known = socket_.get();
  }
  ~Taking() {
    const std::scoped_lock held(state_.mutex);
    const auto known = state_.taking.find(rank_);
    if (known != state_.taking.end() && known->second == socket_.get()) state_.taking.erase(known);
  }
  Taking(const Taking&) = delete;

 private:
  State& state_;
  int rank_;
  files::Fd socket_;  ///< the connection's, until this is gone
};

void Mover::State::take_copy(BulkStream& stream, int socket, const PutRequest& asked) {
  low_priority();
  const Seal& seal = asked.seal;
  const Taking the_only_one(*this, asked.rank, socket);
  const fs::path of_rank = folder / folder_name(asked.rank, true);
  const auto known = read_generations(of_rank);
  for (const auto& there : known)
    if (there && there->is(seal.step, seal.attempt))
      return stream.send(to_text(MoverConsent{.here = true, .seal = {}}));
  const int generation = generation_to_replace(known, seal.attempt, asked.base_step, asked.base_attempt);
  Incoming copy(of_rank / std::to_string(generation), seal);
  stream.send(to_text(MoverConsent{}));
  copy.take(stream);
  stream.send(to_text(MoverConsent{}));
}

void Mover::State::give_state(BulkStream& stream, const GetRequest& asked) const {
  const auto path = find_state(folder, asked.rank, asked.step, asked.attempt);
  if (!path) throw give_up("it is not here");
  const auto held = lock(*path, LOCK_SH);
  const auto seal = read_seal(*path);
  if (!seal || !seal->is(asked.step, asked.attempt)) throw give_up("it is not here any more");
  stream.send(to_text(MoverConsent{.here = false, .seal = *seal}));
  send_buffers(stream, *path, *seal);
}

/// What another mover wants.
void Mover::State::serve(files::Fd connected) {
  const int socket = connected.get();
  BulkStream stream(std::move(connected), control::Session::End::server, secret);
  try {
    const MoverRequest asked = request_of(stream.receive());
    if (const auto* put = std::get_if<PutRequest>(&asked)) return take_copy(stream, socket, *put);
    give_state(stream, std::get<GetRequest>(asked));
  } catch (const std::exception& error) {
    stream.send(refusal_text(error.what()));
    throw;
  }
}

void Mover::State::accept(const std::shared_ptr<State>& self) {
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

/// While this lives, a copy of this attempt can be ended from outside: one to a node that is lost need not
/// wait for it.
class Mover::State::Interruptible {
 public:
  Interruptible(State& state, const Attempt& now, int socket)
      : state_(state), socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)) {
    const std::scoped_lock held(state_.mutex);
    if (state_.over || state_.attempt.number != now.number) throw give_up("its attempt is over");
    state_.copying_over.insert(socket_.get());
  }
  ~Interruptible() {
    const std::scoped_lock held(state_.mutex);
    state_.copying_over.erase(socket_.get());
  }
  Interruptible(const Interruptible&) = delete;

 private:
  State& state_;
  files::Fd socket_;  ///< the connection's, until this is gone
};

/// With `mutex` held.
void Mover::State::end_copies() {
  for (const int socket : copying_over) ::shutdown(socket, SHUT_RDWR);
}

/// Of what other nodes keep here of a rank, and of one that ran here, only the state that the attempt began
/// with is of use.
void Mover::State::make_room(int rank) {
  Attempt now;
  {
    const std::scoped_lock held(mutex);
    now = attempt;
  }
  const bool runs_here = std::find(now.ranks.begin(), now.ranks.end(), rank) != now.ranks.end();
  for (const bool copy : {false, true}) {
    if (!copy && runs_here) continue;
    for (const char* number : {"0", "1"}) {
      const fs::path generation = folder / folder_name(rank, copy) / number;
      if (!files::is_there(generation)) continue;
      const files::Fd held = files::open(generation, O_RDONLY | O_DIRECTORY);
      if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0) continue;  // it is being written or read
      const auto seal = read_seal(generation);
      if (seal && (seal->attempt == now.number || seal->is(now.base_step, now.base_attempt))) continue;
      fs::remove(generation / "seal");
      for (const auto& file : files::list(generation)) fs::remove(generation / file);
    }
  }
}

void Mover::State::copy(int rank) {
  Attempt now;
  bool rests = false;
  {
    const std::scoped_lock held(mutex);
    queued.erase(rank);
    rests = rests_until && Clock::now() < *rests_until;
    now = attempt;
  }
  const auto newest = newest_of(rank, now);
  if (!newest) return;
  try {
    if (now.partner.port > 0 && !rests) copy_to_partner(rank, now, *newest);
  } catch (const std::exception& error) {
    const std::scoped_lock held(mutex);
    if (over || attempt.number != now.number) return;  // that partner is none any more
    if (!rests_until)
      log::warn("the buffers of rank {} are not copied to the partner node: {}", rank, error.what());
    rests_until = Clock::now() + rest_after_failure;
  }
  try {
    deal_with(folder / folder_name(rank, false), newest->seal.attempt, newest->seal.step);
  } catch (const std::exception& error) {
    log::warn("rank {} waits in vain for a copy of its buffers: {}", rank, error.what());
  }
}

/// A file that can be written over when there is no memory any more.
void Mover::State::make_room_for_word(int rank) const {
  const fs::path of_rank = folder / folder_name(rank, false);
  if (files::is_there(of_rank / "copied")) return;
  if (::mkdir(of_rank.c_str(), 0700) != 0 && errno != EEXIST)
    throw system_error("cannot create " + of_rank.string(), errno);
  deal_with(of_rank, 0, -1);
}

std::optional<Mover::State::Newest> Mover::State::newest_of(int rank, const Attempt& now) const {
  const fs::path of_rank = folder / folder_name(rank, false);
  const auto generations = read_generations(of_rank);
  const int newest = 1 - generation_to_replace(generations, now.number, now.base_step, now.base_attempt);
  const auto& there = generations[newest];
  if (!there || (there->attempt != now.number && !there->is(now.base_step, now.base_attempt)))
    return std::nullopt;
  return Newest{of_rank / std::to_string(newest), *there};
}

void Mover::State::copy_to_partner(int rank, const Attempt& now, const Newest& newest) {
  if (has_copy(rank, newest.seal)) return;
  low_priority();
  files::Fd socket = control::connect_to(now.partner.hosts, now.partner.port);
  const Interruptible interruptible(*this, now, socket.get());
  BulkStream stream(std::move(socket), control::Session::End::client, secret);
  const auto held = lock(newest.generation, LOCK_SH);  // its rank waits before it writes over it
  const auto seal = read_seal(newest.generation);
  if (!seal) return;  // a newer one follows
  stream.send(to_text(PutRequest{rank, *seal, now.base_step, now.base_attempt}));
  if (!consent_of(stream.receive()).here) {
    send_buffers(stream, newest.generation, *seal);
    consent_of(stream.receive());
  }
  const std::scoped_lock locked(mutex);
  if (attempt.number != now.number) return;  // the next partner does not have it
  copied[rank] = {seal->attempt, seal->step};
  // One that was under way when another rank's failed does not end the rest.
  if (rests_until && Clock::now() >= *rests_until) rests_until.reset();
}

bool Mover::State::has_copy(int rank, const Seal& seal) {
  const std::scoped_lock held(mutex);
  const auto known = copied.find(rank);
  return known != copied.end() && known->second == std::pair(seal.attempt, seal.step);
}

void Mover::State::fetch(const Source& source, std::int64_t step, int of_attempt) {
  const fs::path of_rank = folder / folder_name(source.rank, false);
  const auto known = read_generations(of_rank);
  for (const auto& there : known)
    if (there && there->is(step, of_attempt)) return;
  BulkStream stream(control::connect_to(source.from.hosts, source.from.port), control::Session::End::client,
                    secret);
  stream.send(to_text(GetRequest{source.rank, step, of_attempt}));
  const auto seal = consent_of(stream.receive()).seal;
  if (!seal || !seal->is(step, of_attempt)) throw give_up("the other mover sends another state");
  const int generation = generation_to_replace(known, -1, -1, 0);
  Incoming(of_rank / std::to_string(generation), *seal).take(stream);
}

Mover::Mover(control::Loop& loop, fs::path folder, const control::Key& secret)
    : state_(std::make_shared<State>()), copiers_(loop), fetchers_(loop) {
  State& state = *state_;
  state.folder = std::move(folder);
  state.secret = secret;
  make_private(state.folder.parent_path());
  const std::string run = control::to_hex(control::mac(secret, "buffers"));
  if (text_or_nothing(state.folder / "run") != run) {
    std::error_code ignored;
    fs::remove_all(state.folder, ignored);
  }
  make_private(state.folder);
  files::replace_atomically(state.folder / "run", run);
  // Other movers know the port of the one before this.
  int before = 0;
  std::istringstream(text_or_nothing(state.folder / "port")) >> before;
  try {
    state.listener = control::listen_on(before);
  } catch (const Error&) {
    state.listener = control::listen_on(0);
  }
  port_ = control::port_of(state.listener.get());
  files::replace_atomically(state.folder / "port", std::to_string(port_));
  const auto told = json::parse(text_or_nothing(state.folder / "attempt"), nullptr, false);
  if (told.is_object())
    state.attempt = {told.at("number"),
                     {told.at("hosts"), told.at("port")},
                     {},
                     told.at("base_step"),
                     told.at("base_attempt")};
  std::thread([self = state_] { self->accept(self); }).detach();
}

Mover::~Mover() {
  {
    const std::scoped_lock held(state_->mutex);
    state_->over = true;
    state_->end_copies();
  }
  ::shutdown(state_->listener.get(), SHUT_RDWR);
}

fs::path Mover::folder_of(int rank) const { return state_->folder / folder_name(rank, false); }

std::int64_t Mover::memory_bytes() const {
  struct statvfs facts {};
  if (::statvfs(state_->folder.c_str(), &facts) != 0) return 0;
  return static_cast<std::int64_t>(facts.f_blocks) * static_cast<std::int64_t>(facts.f_frsize);
}

std::vector<control::SealedState> Mover::sealed() const { return sealed_states(state_->folder); }

void Mover::begin(const Attempt& attempt) {
  {
    const std::scoped_lock held(state_->mutex);
    state_->attempt = attempt;
    state_->copied.clear();
    state_->rests_until.reset();
    state_->end_copies();
  }
  for (const int rank : ranks_in(state_->folder))  // behind the copy of the same rank that ends now
    copiers_.of(rank).run([state = state_, rank] {
      try {
        state->make_room(rank);
      } catch (const std::exception& error) {
        log::warn("old snapshot buffers of rank {} stay on this node: {}", rank, error.what());
      }
    });
  for (const int rank : attempt.ranks)
    copiers_.of(rank).run([state = state_, rank] {
      try {
        state->make_room_for_word(rank);
      } catch (const std::exception& error) {
        log::warn("rank {} may wait in vain for a copy of its buffers: {}", rank, error.what());
      }
    });
  try {
    files::replace_atomically(state_->folder / "attempt", json{{"number", attempt.number},
                                                               {"hosts", attempt.partner.hosts},
                                                               {"port", attempt.partner.port},
                                                               {"base_step", attempt.base_step},
                                                               {"base_attempt", attempt.base_attempt}}
                                                              .dump());
  } catch (const Error& error) {
    log::warn("an agent that replaces this one will not copy snapshot buffers: {}", error.what());
  }
}

void Mover::copy(int rank) {
  {
    const std::scoped_lock held(state_->mutex);
    if (!state_->queued.insert(rank).second) return;
  }
  copiers_.of(rank).run([state = state_, rank] { state->copy(rank); });
}

void Mover::fetch(const std::vector<Source>& sources, std::int64_t step, int attempt,
                  std::function<void(const Fetched&)> then) {
  if (sources.empty()) return then({});
  struct Common {
    std::atomic<bool> failed{false};
    // In the loop's thread:
    std::size_t awaited = 0;
    Fetched first;  ///< that failed
    std::function<void(const Fetched&)> then;
  };
  const auto common = std::make_shared<Common>();
  common->awaited = sources.size();
  common->then = std::move(then);
  for (const auto& source : sources)
    fetchers_.of(source.rank)
        .ask(
            [state = state_, common, source, step, attempt]() -> Fetched {
              if (common->failed) return {};  // the leader is to choose again
              try {
                state->fetch(source, step, attempt);
              } catch (const NoRoom& error) {
                common->failed = true;
                return {source.rank, error.why(), true};
              } catch (const std::exception& error) {
                common->failed = true;
                return {source.rank, error.what()};
              }
              return {};
            },
            [common](const Fetched& what) {
              if (common->first.rank < 0) common->first = what;
              if (--common->awaited == 0) common->then(common->first);
            });
}

}  // namespace holdfast::launcher
