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

json read_json(BulkStream& stream) {
  json said = json::parse(stream.receive(), nullptr, false);
  if (!said.is_object()) throw give_up("the other mover says what is no JSON object");
  return said;
}
/// Throws what the other end has against it.
json read_consent(BulkStream& stream) {
  json said = read_json(stream);
  if (!said.value("ok", false)) throw give_up("the other node says: " + said.value("why", "no"));
  return said;
}
std::string text_of(const json& said) { return said.dump(-1, ' ', false, json::error_handler_t::replace); }

/// The buffers of a generation whose lock is held.
void send_buffers(BulkStream& stream, const fs::path& generation, const Seal& seal) {
  for (const auto& buffer : seal.buffers)
    stream.send_bytes(files::open(generation / buffer_file(buffer), O_RDONLY | O_NOFOLLOW).get(),
                      buffer.bytes);
}

/// Takes the buffers of a seal into a generation, which is sealed when all of them are right. `ready` is
/// called when there is room for them.
void take_buffers(BulkStream& stream, const fs::path& generation, const Seal& seal,
                  const std::function<void()>& ready) {
  fs::create_directories(generation);
  const auto held = lock(generation, LOCK_EX);
  fs::remove(generation / "seal");
  std::vector<files::Fd> open;
  for (const auto& name : files::list(generation)) {  // of another program's buffers
    const bool stays = std::any_of(seal.buffers.begin(), seal.buffers.end(),
                                   [&](const auto& buffer) { return buffer_file(buffer) == name; });
    if (!stays) fs::remove(generation / name);
  }
  for (const auto& buffer : seal.buffers) {
    const fs::path path = generation / buffer_file(buffer);
    open.push_back(files::open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    int error = ::ftruncate(open.back().get(), buffer.bytes) != 0 ? errno : 0;
    if (error == 0) error = files::reserve(open.back().get(), buffer.bytes);
    if (error != 0) throw system_error("this node has no memory for " + path.string(), error);
  }
  ready();
  for (std::size_t i = 0; i < open.size(); ++i) {
    std::uint32_t crc = 0;
    stream.receive_bytes(open[i].get(), seal.buffers[i].bytes, [&](std::span<const std::byte> part) {
      crc = crc32_of(crc, part.data(), part.size());
    });
    if (crc != seal.buffers[i].crc)
      throw give_up(fmt::format("the checksum of {} does not hold", seal.buffers[i].name));
  }
  const fs::path aside = generation / "seal.new";
  const std::string text = to_text(seal);
  const files::Fd file = files::open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  files::write_all(file.get(), text.data(), text.size(), 0, aside);
  fs::rename(aside, generation / "seal");
}

/// Where a state lies in the folder of a node.
std::optional<fs::path> find_state(const fs::path& folder, int rank, std::int64_t step, int attempt) {
  for (const bool copy : {false, true})
    for (const char* generation : {"0", "1"}) {
      const fs::path path = folder / folder_name(rank, copy) / generation;
      if (const auto seal = read_seal(path); seal && seal->is(step, attempt)) return path;
    }
  return std::nullopt;
}

Seal seal_in(const json& said) {
  const auto seal = seal_of(said.at("seal").get<std::string>());
  if (!seal) throw give_up("the other mover sends no valid seal");
  return *seal;
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
void deal_with(const fs::path& of_rank, const Seal& seal) {
  try {
    files::replace_atomically(of_rank / "copied", fmt::format("{} {}\n", seal.attempt, seal.step));
  } catch (const Error& error) {
    log::warn("a rank waits in vain for a copy of its buffers: {}", error.what());
  }
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
  int copying_over = -1;                               ///< the socket of the copy that is being made
  std::optional<Clock::time_point> rests_until;        ///< after a failure

  std::map<int, int> taking;  ///< by rank: the socket over which its copy comes

  class Interruptible;
  class Taking;
  /// What a rank would come back from.
  struct Newest {
    fs::path generation;
    Seal seal;
  };
  void serve(files::Fd connected);
  void take_copy(BulkStream& stream, int socket, const json& asked);
  void give_state(BulkStream& stream, const json& asked) const;
  void accept(const std::shared_ptr<State>& self);
  void copy(int rank);
  std::optional<Newest> newest_of(int rank, const Attempt& now) const;
  void copy_to_partner(int rank, const Attempt& now, const Newest& newest);
  bool has_copy(int rank, const Seal& seal);
  void make_room();
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

void Mover::State::take_copy(BulkStream& stream, int socket, const json& asked) {
  low_priority();
  const Seal seal = seal_in(asked);
  const int rank = asked.at("rank").get<int>();
  const Taking the_only_one(*this, rank, socket);
  const fs::path of_rank = folder / folder_name(rank, true);
  const auto known = read_generations(of_rank);
  for (const auto& there : known)
    if (there && there->is(seal.step, seal.attempt)) return stream.send(R"({"ok":true,"here":true})");
  const int generation = generation_to_replace(known, seal.attempt, asked.at("base_step").get<std::int64_t>(),
                                               asked.at("base_attempt").get<int>());
  take_buffers(stream, of_rank / std::to_string(generation), seal, [&] { stream.send(R"({"ok":true})"); });
  stream.send(R"({"ok":true})");
}

void Mover::State::give_state(BulkStream& stream, const json& asked) const {
  const auto step = asked.at("step").get<std::int64_t>();
  const int rank = asked.at("rank").get<int>(), of_attempt = asked.at("attempt").get<int>();
  const auto path = find_state(folder, rank, step, of_attempt);
  if (!path) throw give_up("it is not here");
  const auto held = lock(*path, LOCK_SH);
  const auto seal = read_seal(*path);
  if (!seal || !seal->is(step, of_attempt)) throw give_up("it is not here any more");
  stream.send(text_of({{"ok", true}, {"seal", to_text(*seal)}}));
  send_buffers(stream, *path, *seal);
}

/// What another mover wants.
void Mover::State::serve(files::Fd connected) {
  const int socket = connected.get();
  BulkStream stream(std::move(connected), control::Session::End::server, secret);
  try {
    const json asked = read_json(stream);
    const std::string what = asked.value("m", "");
    if (what == "put") return take_copy(stream, socket, asked);
    if (what == "get") return give_state(stream, asked);
    throw give_up("this mover knows no such request");
  } catch (const std::exception& error) {
    stream.send(text_of({{"ok", false}, {"why", error.what()}}));
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

/// While this lives, begin() may shut the socket down: a copy to a node that is lost need not wait for it.
class Mover::State::Interruptible {
 public:
  Interruptible(State& state, int socket) : state_(state), socket_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)) {
    const std::scoped_lock held(state_.mutex);
    state_.copying_over = socket_.get();
  }
  ~Interruptible() {
    const std::scoped_lock held(state_.mutex);
    state_.copying_over = -1;
  }
  Interruptible(const Interruptible&) = delete;

 private:
  State& state_;
  files::Fd socket_;  ///< the connection's, until this is gone
};

/// Of what other nodes keep here, and of ranks that ran here, only the state that the attempt began with is
/// of use.
void Mover::State::make_room() {
  Attempt now;
  {
    const std::scoped_lock held(mutex);
    now = attempt;
  }
  for (const auto& name : files::list(folder)) {
    const auto of = folder_called(name);
    if (!of || (!of->second && std::find(now.ranks.begin(), now.ranks.end(), of->first) != now.ranks.end()))
      continue;
    for (const char* number : {"0", "1"}) {
      const fs::path generation = folder / name / number;
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
    if (attempt.number != now.number) return;  // that partner is none any more
    if (!rests_until)
      log::warn("the buffers of rank {} are not copied to the partner node: {}", rank, error.what());
    rests_until = Clock::now() + rest_after_failure;
  }
  deal_with(folder / folder_name(rank, false), newest->seal);
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
  const Interruptible interruptible(*this, socket.get());
  BulkStream stream(std::move(socket), control::Session::End::client, secret);
  const auto held = lock(newest.generation, LOCK_SH);  // its rank waits before it writes over it
  const auto seal = read_seal(newest.generation);
  if (!seal) return;  // a newer one follows
  stream.send(text_of({{"m", "put"},
                       {"rank", rank},
                       {"seal", to_text(*seal)},
                       {"base_step", now.base_step},
                       {"base_attempt", now.base_attempt}}));
  if (!read_consent(stream).value("here", false)) {
    send_buffers(stream, newest.generation, *seal);
    read_consent(stream);
  }
  const std::scoped_lock locked(mutex);
  copied[rank] = {seal->attempt, seal->step};
  if (attempt.number == now.number) rests_until.reset();
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
  stream.send(text_of({{"m", "get"}, {"rank", source.rank}, {"step", step}, {"attempt", of_attempt}}));
  const Seal seal = seal_in(read_consent(stream));
  if (!seal.is(step, of_attempt)) throw give_up("the other mover sends another state");
  const int generation = generation_to_replace(known, -1, -1, 0);
  take_buffers(stream, of_rank / std::to_string(generation), seal, [] {});
}

Mover::Mover(control::Loop& loop, fs::path folder, const control::Key& secret)
    : state_(std::make_shared<State>()), copier_(loop), fetcher_(loop) {
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
  state_->over = true;
  ::shutdown(state_->listener.get(), SHUT_RDWR);
}

fs::path Mover::folder_of(int rank) const { return state_->folder / folder_name(rank, false); }

std::int64_t Mover::share_of_rank(int ranks_per_node, bool copies) const {
  struct statvfs facts {};
  if (::statvfs(state_->folder.c_str(), &facts) != 0) return 0;
  const auto all = static_cast<std::int64_t>(facts.f_blocks) * static_cast<std::int64_t>(facts.f_frsize);
  return all / (copies ? 4 : 2) / ranks_per_node;  // two generations of each
}

std::vector<control::SealedState> Mover::sealed() const { return sealed_states(state_->folder); }

void Mover::begin(const Attempt& attempt) {
  {
    const std::scoped_lock held(state_->mutex);
    state_->attempt = attempt;
    state_->copied.clear();
    state_->rests_until.reset();
    if (state_->copying_over >= 0) ::shutdown(state_->copying_over, SHUT_RDWR);
  }
  copier_.run([state = state_] {
    try {
      state->make_room();
    } catch (const std::exception& error) {
      log::warn("old snapshot buffers stay on this node: {}", error.what());
    }
  });
  try {
    files::replace_atomically(state_->folder / "attempt", text_of({{"number", attempt.number},
                                                                   {"hosts", attempt.partner.hosts},
                                                                   {"port", attempt.partner.port},
                                                                   {"base_step", attempt.base_step},
                                                                   {"base_attempt", attempt.base_attempt}}));
  } catch (const Error& error) {
    log::warn("an agent that replaces this one will not copy snapshot buffers: {}", error.what());
  }
}

void Mover::copy(int rank) {
  {
    const std::scoped_lock held(state_->mutex);
    if (!state_->queued.insert(rank).second) return;
  }
  copier_.run([state = state_, rank] { state->copy(rank); });
}

void Mover::fetch(std::vector<Source> sources, std::int64_t step, int attempt,
                  std::function<void(const Fetched&)> then) {
  fetcher_.ask(
      [state = state_, sources = std::move(sources), step, attempt]() -> Fetched {
        for (const auto& source : sources) try {
            state->fetch(source, step, attempt);
          } catch (const std::exception& error) {
            return {source.rank, error.what()};
          }
        return {};
      },
      std::move(then));
}

}  // namespace holdfast::launcher
