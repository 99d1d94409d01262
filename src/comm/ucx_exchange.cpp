// PeerExchange by UCX. One thread per object does all that concerns UCX: it serves the connections between
// the calls too, so that nobody who is done leaves others waiting for an answer. A piece goes in messages of
// `chunk` bytes, a few under way to each rank; whoever has all of a piece says so, and only then is it sent.
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "src/base/error.hpp"
#include "src/comm/peer_exchange.hpp"
#include "src/comm/ucx_addresses.hpp"
#include "src/comm/ucx_worker.hpp"

namespace holdfast::comm {
namespace {

constexpr std::size_t chunk = std::size_t{8} << 20;
constexpr int under_way = 4;
constexpr std::chrono::milliseconds goodbye{2000};
constexpr std::chrono::milliseconds long_nap{200};
// UCX's own wake-up does not tell of everything over TCP: while something is under way we look by ourselves.
constexpr std::chrono::milliseconds short_nap{1};

/// From the highest bit: 1 says "I have it", 15 who sends the piece, 32 its tag, 16 the number of the chunk.
/// Nothing collides.
constexpr std::uint64_t wire_tag(bool have_it, int sender, std::uint64_t tag, std::size_t number) {
  return std::uint64_t{have_it} << 63 | static_cast<std::uint64_t>(sender) << 48 | tag << 16 | number;
}

std::size_t chunks_of(std::size_t bytes) { return (bytes + chunk - 1) / chunk; }

struct Message : UcxMessage {
  enum class Kind { data_out, have_it_in, data_in, have_it_out };
  Kind kind{};
  int peer = 0;
  std::size_t piece = 0, expected = 0;
};

/// One run() while it lasts.
struct Job {
  std::span<const PieceOut> out;
  std::span<const PieceIn> in;
  Deadline deadline;
  struct Peer {
    std::deque<std::pair<std::size_t, std::size_t>> to_send;  ///< piece, chunk
    int sending = 0;
    int awaited = 0;  ///< messages that only this rank can send
    std::int64_t received = 0, due = 0;
    std::optional<Clock::time_point> heard;  ///< when something came from it last
  };
  std::map<int, Peer> peers = {};
  std::vector<std::size_t> chunks_left = {};  ///< of each piece of `in`
  std::deque<Message> messages = {};
  std::int64_t messages_left = 0;
  bool begun = false;
  std::optional<Error> failure = {};
};

class UcxExchange final : public PeerExchange {
 public:
  UcxExchange(int rank, std::unique_ptr<UcxWorker> worker, std::vector<std::vector<std::byte>> addresses,
              ExchangeOptions options)
      : rank_(rank),
        options_(std::move(options)),
        addresses_(std::move(addresses)),
        worker_(std::move(worker)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0) throw system_error("cannot make an event descriptor", errno);
    thread_ = std::thread([this] { serve(); });
  }
  ~UcxExchange() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    over_.notify_all();
    wake_up();
    thread_.join();
    ::close(wake_);
  }

  ExchangeRate run(std::span<const PieceOut> out, std::span<const PieceIn> in,
                   const Deadline& deadline) override;

  std::string describe() const override {
    const std::lock_guard lock(mutex_);
    return describe_lanes(lanes_);
  }

 private:
  void serve();
  void wake_up() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto told = ::write(wake_, &one, sizeof one);
  }
  void begin(Job& job);
  void advance(Job& job);
  void finish(Job& job, Message& message);
  void send_more(Job& job, int rank, Job::Peer& peer);
  Message& message(Job& job, Message::Kind kind, int peer, std::size_t piece, std::size_t expected);
  void fail(const Job& job, int rank, const std::string& why) const;

  const int rank_;
  const ExchangeOptions options_;
  const std::vector<std::vector<std::byte>> addresses_;  // by rank
  std::unique_ptr<UcxWorker> worker_;  // of the thread alone, once it runs; gone after a failure
  const int wake_;

  mutable std::mutex mutex_;
  std::condition_variable over_;
  Job* job_ = nullptr;
  bool stop_ = false, broken_ = false;
  std::set<std::string> lanes_;
  std::thread thread_;
};

void check_pieces(std::span<const PieceOut> out, std::span<const PieceIn> in, int rank, int world) {
  const auto check = [&](std::vector<std::pair<int, std::uint64_t>> names) {
    for (const auto& [peer, tag] : names) {
      expects(peer >= 0 && peer < world && peer != rank, "a piece goes to another rank of the world");
      expects(tag <= 0xffffffffu, "tags of pieces are below 2^32");
    }
    std::sort(names.begin(), names.end());
    expects(std::adjacent_find(names.begin(), names.end()) == names.end(),
            "pieces between the same two ranks have different tags");
  };
  std::vector<std::pair<int, std::uint64_t>> names;
  for (const auto& piece : out) names.emplace_back(piece.to, piece.tag);
  check(names);
  names.clear();
  for (const auto& piece : in) names.emplace_back(piece.from, piece.tag);
  check(names);
}

ExchangeRate UcxExchange::run(std::span<const PieceOut> out, std::span<const PieceIn> in,
                              const Deadline& deadline) {
  check_pieces(out, in, rank_, static_cast<int>(addresses_.size()));
  ExchangeRate rate;
  for (const auto& piece : out) rate.sent += std::ssize(piece.bytes);
  for (const auto& piece : in) rate.received += std::ssize(piece.bytes);
  if (out.empty() && in.empty()) return rate;
  const auto start = Clock::now();
  Job job{.out = out, .in = in, .deadline = deadline};
  {
    std::unique_lock lock(mutex_);
    expects(job_ == nullptr, "one call at a time");
    if (broken_)
      throw Error(Exit::runtime, "state cannot be exchanged any more", "an exchange before this one failed");
    job_ = &job;
    wake_up();
    over_.wait(lock, [&] { return job_ == nullptr; });
  }
  if (job.failure) throw Error(*job.failure);
  rate.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return rate;
}

void UcxExchange::serve() {
  for (;;) {
    Job* job = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) break;
      job = job_;
    }
    if (job == nullptr && !worker_) {
      std::unique_lock lock(mutex_);  // nothing is served after a failure
      over_.wait(lock, [&] { return stop_; });
      break;
    }
    bool moved = false;
    try {
      if (job != nullptr && !job->begun) begin(*job);
      moved = worker_->progress();
      if (job != nullptr) advance(*job);
    } catch (const Error& error) {
      if (job != nullptr) job->failure = error;
    }
    if (job != nullptr && (job->failure || job->messages_left == 0)) {
      // Before the caller has its memory back nobody may write to it any more.
      if (job->failure) worker_.reset();
      const std::lock_guard lock(mutex_);
      broken_ = job->failure.has_value();
      job_ = nullptr;
      over_.notify_all();
      continue;
    }
    if (moved) continue;
    const auto longest = job == nullptr ? long_nap : std::min(short_nap, Millis(job->deadline.left_ms()));
    worker_->sleep(wake_, longest);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_, &count, sizeof count);
  }
  if (worker_) worker_->flush(goodbye);
  worker_.reset();
}

Message& UcxExchange::message(Job& job, Message::Kind kind, int peer, std::size_t piece,
                              std::size_t expected) {
  Message& fresh = job.messages.emplace_back();
  fresh.kind = kind;
  fresh.peer = peer;
  fresh.piece = piece;
  fresh.expected = expected;
  ++job.messages_left;
  return fresh;
}

void UcxExchange::begin(Job& job) {
  job.begun = true;
  std::set<int> ranks;
  for (const auto& piece : job.out) ranks.insert(piece.to);
  for (const auto& piece : job.in) ranks.insert(piece.from);
  for (int rank : ranks) {
    const auto lanes = worker_->connect(rank, addresses_[rank]);
    refuse_other_lanes(lanes, options_.network);
    const std::lock_guard lock(mutex_);
    lanes_.insert(lanes.begin(), lanes.end());
  }
  job.chunks_left.resize(job.in.size());
  for (std::size_t i = 0; i < job.in.size(); ++i) {
    const PieceIn& piece = job.in[i];
    Job::Peer& peer = job.peers[piece.from];
    peer.due += std::ssize(piece.bytes);
    // An empty piece is one message too: the sender waits for its answer.
    const std::size_t chunks = std::max<std::size_t>(1, chunks_of(piece.bytes.size()));
    expects(chunks <= 0x10000, "a piece has at most 512 GiB");
    job.chunks_left[i] = chunks;
    peer.awaited += static_cast<int>(chunks);
    for (std::size_t k = 0; k < chunks; ++k) {
      const auto bytes = piece.bytes.subspan(k * chunk, std::min(chunk, piece.bytes.size() - k * chunk));
      worker_->receive(wire_tag(false, piece.from, piece.tag, k), bytes,
                       message(job, Message::Kind::data_in, piece.from, i, bytes.size()));
    }
  }
  for (std::size_t i = 0; i < job.out.size(); ++i) {
    const PieceOut& piece = job.out[i];
    Job::Peer& peer = job.peers[piece.to];
    ++peer.awaited;
    worker_->receive(wire_tag(true, rank_, piece.tag, 0), {},
                     message(job, Message::Kind::have_it_in, piece.to, i, 0));
    for (std::size_t k = 0; k < std::max<std::size_t>(1, chunks_of(piece.bytes.size())); ++k)
      peer.to_send.emplace_back(i, k);
  }
  for (auto& [rank, peer] : job.peers) send_more(job, rank, peer);
}

void UcxExchange::send_more(Job& job, int rank, Job::Peer& peer) {
  for (; peer.sending < under_way && !peer.to_send.empty(); peer.to_send.pop_front()) {
    const auto [piece, number] = peer.to_send.front();
    const auto& all = job.out[piece].bytes;
    const auto bytes = all.subspan(number * chunk, std::min(chunk, all.size() - number * chunk));
    ++peer.sending;
    worker_->send(rank, wire_tag(false, rank_, job.out[piece].tag, number), bytes,
                  message(job, Message::Kind::data_out, rank, piece, 0));
  }
}

void UcxExchange::advance(Job& job) {
  for (UcxMessage* ended : worker_->finished()) finish(job, static_cast<Message&>(*ended));
  for (const auto& [rank, peer] : job.peers)
    if (const char* why = peer.awaited > 0 ? worker_->lost(rank) : nullptr) fail(job, rank, why);
  if (job.messages_left == 0) return;
  const bool late = job.deadline.passed();
  for (const auto& [rank, peer] : job.peers) {
    if (peer.awaited == 0) continue;
    if (late) fail(job, rank, "time is up");
    if (peer.heard && Clock::now() - *peer.heard > options_.limit)
      fail(job, rank, fmt::format("it was silent for {} ms", options_.limit.count()));
  }
  if (late) fail(job, job.peers.begin()->first, "time is up");
}

void UcxExchange::finish(Job& job, Message& ended) {
  --job.messages_left;
  Job::Peer& peer = job.peers.at(ended.peer);
  const bool from_peer = ended.kind == Message::Kind::data_in || ended.kind == Message::Kind::have_it_in;
  // A rank that has and gave everything may go.
  if (ended.failure != nullptr && peer.awaited > 0) fail(job, ended.peer, ended.failure);
  if (from_peer) {
    --peer.awaited;
    peer.heard = Clock::now();
  }
  if (ended.kind == Message::Kind::data_out) {
    --peer.sending;
    send_more(job, ended.peer, peer);
  }
  if (ended.kind != Message::Kind::data_in) return;
  if (ended.bytes != ended.expected)
    fail(job, ended.peer, fmt::format("{} bytes came where {} were due", ended.bytes, ended.expected));
  peer.received += static_cast<std::int64_t>(ended.bytes);
  if (--job.chunks_left[ended.piece] == 0)
    worker_->send(ended.peer, wire_tag(true, ended.peer, job.in[ended.piece].tag, 0), {},
                  message(job, Message::Kind::have_it_out, ended.peer, ended.piece, 0));
}

void UcxExchange::fail(const Job& job, int rank, const std::string& why) const {
  const Job::Peer& peer = job.peers.at(rank);
  const auto others = std::count_if(job.peers.begin(), job.peers.end(), [&](const auto& entry) {
    return entry.first != rank && entry.second.awaited > 0;
  });
  throw Error(Exit::runtime, fmt::format("the exchange of state with rank {} failed", rank),
              fmt::format("{}; {} of {} bytes came{}", why, peer.received, peer.due,
                          others == 0 ? "" : fmt::format("; {} more ranks are not done", others)));
}

/// A world of one.
class NobodyElse final : public PeerExchange {
 public:
  ExchangeRate run(std::span<const PieceOut> out, std::span<const PieceIn> in, const Deadline&) override {
    check_pieces(out, in, 0, 1);
    return {};
  }
  std::string describe() const override { return "nobody else"; }
};

}  // namespace

std::unique_ptr<PeerExchange> open_exchange(Communicator& world, const ExchangeOptions& options) {
  if (world.size() == 1) return std::make_unique<NobodyElse>();
  expects(world.size() <= 1 << 15, "a world of at most 32768 ranks");
  std::unique_ptr<UcxWorker> worker;
  std::optional<Error> failure;
  try {
    worker = std::make_unique<UcxWorker>(
        choose_transports(ucx_transports(), options.network, options.shared_memory));
  } catch (const Error& error) {
    failure = error;
  }
  auto addresses = share_addresses(world, worker ? worker->address() : std::vector<std::byte>());
  if (failure) throw Error(*failure);
  for (std::size_t rank = 0; rank < addresses.size(); ++rank)
    if (addresses[rank].empty())
      throw Error(Exit::runtime, fmt::format("state cannot be exchanged with rank {}", rank),
                  "it has no network for that; its own error says why");
  return std::make_unique<UcxExchange>(world.rank(), std::move(worker), std::move(addresses), options);
}

}  // namespace holdfast::comm
