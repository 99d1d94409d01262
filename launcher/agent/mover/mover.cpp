// The agent's loop hands over three kinds of work. Each runs in one of eight threads, chosen by rank, so the
// work for one rank is done in order and a node's ranks do not wait for each other.
//
// begin: a new attempt. States of earlier attempts are removed, except the one that this attempt began with.
//
// copy: a rank has sealed a state. The thread connects to the partner's mover, locks the generation so that
// its rank does not write into it, and sends the seal. If the partner does not have that state, the buffers
// follow. Then the file "copied" lets the rank go on, whether or not the copy succeeded: no rank waits for a
// partner that fails. After a failure no copy is tried for 30 s.
//
// fetch: a rank is to start here, and its state is on another node. If a damaged copy of that very state is
// here, only the buffers that are not whole are asked for. The first failure is the answer for all ranks,
// since the leader must then choose another state.
//
// A new attempt gives up the copies of the last one, and a new request the fetches of the last one: a stop
// token ends their connections. Each thread holds the State, so one that hangs in the kernel may outlive the
// Mover and harms nothing.
#include "launcher/agent/mover/mover.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>

#include "launcher/agent/mover/generation_files.hpp"
#include "launcher/agent/mover/interruptible.hpp"
#include "launcher/agent/mover/requests.hpp"
#include "launcher/agent/mover/seals.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/strict_json.hpp"
#include "src/control/bulk.hpp"

namespace holdfast::launcher {

using control::BulkStream;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr Millis rest_after_failure{30000};  // a partner that does not answer must not hold up every step
constexpr Millis off_at_least{60000};        // for so long a failure is told at least
constexpr Millis crowded_limit{2000}, between_dials{50};

/// The rank waits at its seal until this is written: then its state is at the partner, or it is not to be had
/// there.
void deal_with(const fs::path& of_rank, int attempt, std::int64_t step) {
  const fs::path path = of_rank / "copied";
  const std::string text = fmt::format("{} {}\n", attempt, step);
  try {
    files::replace_atomically(path, text);
  } catch (const Error&) {
    // Without memory for another file, the one that is there is written over, which needs none.
    const files::Fd file = files::open(path, O_WRONLY);
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

/// A connection to another mover, which ends when it is given up. Where others open many, the mover may close
/// this one before it has proved itself: then it is tried again, for a short time.
class MoverLine {
 public:
  MoverLine(const Mover::Place& to, const control::Key& key, const std::stop_token& given_up) {
    for (const auto limit = Deadline::in(crowded_limit); !stream_;) try {
        files::Fd socket = control::connect_to(to.hosts, to.port);
        ends_.emplace(given_up, socket.get());
        stream_ = std::make_unique<BulkStream>(std::move(socket), control::Session::End::client, key);
      } catch (const Error&) {
        if (!ends_ || limit.passed() || given_up.stop_requested()) throw;  // it cannot be reached at all
        ends_.reset();
        std::this_thread::sleep_for(between_dials);
      }
  }
  BulkStream& stream() const { return *stream_; }

 private:
  std::unique_ptr<BulkStream> stream_;
  std::optional<Interruptible> ends_;
};

}  // namespace

fs::path buffers_folder(const fs::path& local_level, const std::string& node) {
  return local_level / ("buffers-" + node);
}

struct Mover::State {
  /// A state that is being fetched, or was.
  struct Fetch {
    Source source;
    std::int64_t step = -1;
    int attempt = 0;
    std::stop_source given_up = {};
    bool is_for(const Fetch& other) const {
      return source == other.source && step == other.step && attempt == other.attempt;
    }
  };
  /// What a rank would come back from.
  struct Newest {
    fs::path generation;
    Seal seal;
  };

  fs::path folder;
  control::Key key{};

  std::mutex mutex;  ///< of what follows
  Attempt attempt;
  std::stop_source attempt_over;
  std::map<int, std::pair<int, std::int64_t>> copied;  ///< by rank: (attempt, step) that its partner has
  std::set<int> queued;                                ///< ranks whose newest state is to be copied
  std::optional<Clock::time_point> rests_until;        ///< after a failure
  std::optional<Clock::time_point> failed_at;          ///< the last of them ...
  std::string failed_by;                               ///< ... in words
  std::map<int, Fetch> fetches;                        ///< of the last request, by rank

  void copy(int rank);
  std::optional<Newest> newest_of(int rank, const Attempt& now) const;
  void copy_to_partner(int rank, const Attempt& now, const std::stop_token& over, const Newest& newest);
  bool has_copy(int rank, const Seal& seal);
  void make_room(int rank);
  void make_room_for_word(int rank) const;
  void begin(const Attempt& next);
  std::map<int, Fetch> begin_fetches(const std::vector<Source>& sources, std::int64_t step, int of_attempt);
  void fetch(const Fetch& what) const;
};

void Mover::State::begin(const Attempt& next) {
  const std::scoped_lock held(mutex);
  attempt = next;
  copied.clear();
  rests_until.reset();
  failed_at.reset();
  attempt_over.request_stop();
  attempt_over = std::stop_source();
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
    for (const char* number : {"0", "1"})
      remove_unless(folder / folder_name(rank, copy) / number, [&](const Seal& seal) {
        return seal.attempt == now.number || seal.is(now.base_step, now.base_attempt);
      });
  }
}

void Mover::State::copy(int rank) {
  Attempt now;
  std::stop_token over;
  bool rests = false;
  {
    const std::scoped_lock held(mutex);
    queued.erase(rank);
    rests = rests_until && Clock::now() < *rests_until;
    now = attempt;
    over = attempt_over.get_token();
  }
  const auto newest = newest_of(rank, now);
  if (!newest) return;
  try {
    if (now.partner.port > 0 && !rests) copy_to_partner(rank, now, over, *newest);
  } catch (const std::exception& error) {
    const std::scoped_lock held(mutex);
    if (over.stop_requested()) return;  // that partner is none any more
    if (!rests_until)
      log::warn("the buffers of rank {} are not copied to the partner node: {}", rank, error.what());
    failed_at = Clock::now();
    failed_by = error.what();
    rests_until = *failed_at + rest_after_failure;
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

void Mover::State::copy_to_partner(int rank, const Attempt& now, const std::stop_token& over,
                                   const Newest& newest) {
  if (has_copy(rank, newest.seal)) return;
  lower_priority_of_thread();
  const MoverLine line(now.partner, key, over);
  BulkStream& stream = line.stream();
  const auto held = lock_generation(newest.generation, LOCK_SH, over);  // its rank waits before it writes
  const auto seal = read_seal(newest.generation);
  if (!seal) return;  // a newer one follows
  stream.send(to_text(PutRequest{rank, *seal, now.base_step, now.base_attempt}));
  if (!consent_of(stream.receive()).here) {
    send_buffers(stream, newest.generation, *seal);
    consent_of(stream.receive());
  }
  const std::scoped_lock locked(mutex);
  if (over.stop_requested()) return;  // the next partner does not have it
  copied[rank] = {seal->attempt, seal->step};
  // One that was under way when another rank's failed does not end the rest.
  if (rests_until && Clock::now() >= *rests_until) rests_until.reset();
}

bool Mover::State::has_copy(int rank, const Seal& seal) {
  const std::scoped_lock held(mutex);
  const auto known = copied.find(rank);
  return known != copied.end() && known->second == std::pair(seal.attempt, seal.step);
}

/// What is being fetched and is wanted still goes on; the rest is given up.
std::map<int, Mover::State::Fetch> Mover::State::begin_fetches(const std::vector<Source>& sources,
                                                               std::int64_t step, int of_attempt) {
  const std::scoped_lock held(mutex);
  std::map<int, Fetch> wanted;
  for (const auto& source : sources) {
    Fetch fetch{source, step, of_attempt};
    const auto known = fetches.find(source.rank);
    if (known != fetches.end() && known->second.is_for(fetch)) fetch.given_up = known->second.given_up;
    wanted.insert_or_assign(source.rank, fetch);
  }
  for (auto& [rank, fetch] : fetches)
    if (const auto stays = wanted.find(rank);
        stays == wanted.end() || stays->second.given_up != fetch.given_up)
      fetch.given_up.request_stop();
  return fetches = std::move(wanted);
}

/// Where the rank has found a buffer of this very state damaged, only what is not whole is sent.
void Mover::State::fetch(const Fetch& what) const {
  const fs::path of_rank = folder / folder_name(what.source.rank, false);
  const auto known = read_generations(of_rank);
  for (const auto& there : known)
    if (there && there->is(what.step, what.attempt)) return;
  const auto given_up = what.given_up.get_token();
  int generation = generation_to_replace(known, -1, -1, 0);
  GetRequest request{what.source.rank, what.step, what.attempt};
  std::optional<Seal> damaged;
  for (const int g : {0, 1})
    if (const auto was = read_seal(of_rank / std::to_string(g), "damaged");
        was && was->is(what.step, what.attempt)) {
      generation = g;
      damaged = was;
      request.have = whole_buffers(of_rank / std::to_string(g), *was, given_up);
    }
  const MoverLine line(what.source.from, key, given_up);
  BulkStream& stream = line.stream();
  stream.send(to_text(request));
  const auto seal = consent_of(stream.receive()).seal;
  if (!seal || !seal->is(what.step, what.attempt) || (damaged && *seal != *damaged))
    throw not_moved("the other mover sends another state");
  IncomingState(of_rank / std::to_string(generation), *seal, given_up, request.have).take(stream);
}

Mover::Mover(control::Loop& loop, fs::path folder, const control::Key& secret, const std::vector<int>& ports)
    : state_(std::make_shared<State>()), copiers_(loop), fetchers_(loop) {
  State& state = *state_;
  state.folder = std::move(folder);
  state.key = mover_key(secret);
  files::make_private_folder(state.folder.parent_path());
  const std::string run = control::to_hex(control::mac(secret, "buffers"));
  if (text_or_nothing(state.folder / "run") != run) {
    std::error_code ignored;
    fs::remove_all(state.folder, ignored);
  }
  files::make_private_folder(state.folder);
  files::replace_atomically(state.folder / "run", run);
  const auto told = json_from(text_or_nothing(state.folder / "attempt"));
  if (told.is_object())
    state.attempt = {told.at("number"),
                     {told.at("hosts"), told.at("port")},
                     {},
                     told.at("base_step"),
                     told.at("base_attempt")};
  server_.emplace(state.folder, state.key, ports);
}

Mover::~Mover() {
  give_up_fetches();
  state_->begin({});
}

fs::path Mover::folder_of(int rank) const { return state_->folder / folder_name(rank, false); }

std::string Mover::copies_off() const {
  const std::scoped_lock held(state_->mutex);
  const auto& failed = state_->failed_at;
  const bool off = failed && (state_->rests_until || Clock::now() < *failed + off_at_least);
  return off ? state_->failed_by : "";
}

std::int64_t Mover::memory_bytes() const {
  struct statvfs facts {};
  if (::statvfs(state_->folder.c_str(), &facts) != 0) return 0;
  return static_cast<std::int64_t>(facts.f_blocks) * static_cast<std::int64_t>(facts.f_frsize);
}

std::vector<control::SealedState> Mover::sealed() const { return sealed_states(state_->folder); }

void Mover::begin(const Attempt& attempt) {
  give_up_fetches();
  state_->begin(attempt);
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
  const auto fetches = state_->begin_fetches(sources, step, attempt);
  if (fetches.empty()) return then({});
  struct Common {
    std::atomic<bool> failed{false};
    // In the loop's thread:
    std::size_t awaited = 0;
    bool answered = false;
    std::function<void(const Fetched&)> then;
  };
  const auto common = std::make_shared<Common>();
  common->awaited = fetches.size();
  common->then = std::move(then);
  for (const auto& [rank, fetch] : fetches)
    fetchers_.of(rank).ask(
        [state = state_, common, fetch = fetch]() -> Fetched {
          if (common->failed || fetch.given_up.stop_requested()) return {};  // the leader chooses again
          try {
            state->fetch(fetch);
          } catch (const NoRoom& error) {
            common->failed = true;
            return {fetch.source.rank, error.why(), true};
          } catch (const std::exception& error) {
            common->failed = true;
            return {fetch.source.rank, error.what()};
          }
          return {};
        },
        [common, given_up = fetch.given_up.get_token()](const Fetched& what) {
          --common->awaited;
          if (given_up.stop_requested()) common->answered = true;  // nobody asks any more
          if (common->answered || (what.rank < 0 && common->awaited > 0)) return;
          common->answered = true;
          common->then(what);
        });
}

void Mover::give_up_fetches() { state_->begin_fetches({}, -1, 0); }

}  // namespace holdfast::launcher
