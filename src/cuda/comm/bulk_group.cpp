#include "src/cuda/comm/bulk_group.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace holdfast::cuda {
namespace {

constexpr std::int64_t words_bytes = 4096;
constexpr std::size_t line_words = 16;  // what two writers would share
/// How long a group that is given up may take to fall silent. Its streams wait for nobody then.
constexpr auto grace = std::chrono::seconds(10);

}  // namespace

/// Whoever waits longer than an operation may take hears from the watch first, which knows more.
StreamOptions BulkGroup::stream_options(const CommunicatorOptions& options) {
  return {.limit = 2 * options.limit, .priority = Runtime::Priority::high};
}

BulkGroup::BulkGroup(Runtime& runtime, Watch& watch, GroupFacts facts, const CommunicatorOptions& options)
    : runtime_(runtime),
      limit_(options.limit),
      stream_(runtime, facts.name, stream_options(options)),
      watch_(watch),
      facts_(std::move(facts)),
      recorder_(options.recorder),
      explain_(options.explain),
      pending_(places),
      events_(places) {
  auto* words = static_cast<std::uint32_t*>(runtime_.host_alloc(words_bytes));
  std::memset(words, 0, words_bytes);
  begun_ = words;
  ended_ = words + line_words;
  stream_.on_wait([this] { watch_.check(); });
}

BulkGroup::~BulkGroup() {
  if (quiet_) runtime_.host_free(begun_);
}

void BulkGroup::watch() {
  if (recorder_ != nullptr) place_ = recorder_->join(facts_.key, facts_.name, size(), me());
  watch_.add(*this);
  watched_ = true;
}

// ---- the caller's side

void BulkGroup::throw_if_failed() const {
  if (failed_.load(std::memory_order_acquire)) throw Error(*failure_);
}

std::string BulkGroup::describe(std::uint64_t number) const {
  return fmt::format("{} #{} over {}", flight::name_of(pending(number).kind), number, facts_.name);
}

std::uint64_t BulkGroup::next(Collective kind, std::int64_t wire_bytes, std::uint64_t what) {
  throw_if_failed();
  const std::uint64_t number = queued() + 1;
  if (number > places) {
    events_[number % places].wait();
    watch_.check();  // and its place is free
  }
  Pending& place = pending_[number % places];
  place = {};
  place.kind = kind;
  place.wire_bytes = wire_bytes;
  place.what = what;
  place.enqueued_ns = steady_ns();
  announce(number, what);
  queued_.store(number, std::memory_order_release);
  watch_.wake();
  return number;
}

void BulkGroup::begin(std::uint64_t number, const Event& after) {
  stream_.wait(after);
  runtime_.write_word(stream_.handle(), begun_, static_cast<std::uint32_t>(number));
}

Event BulkGroup::end(std::uint64_t number) {
  runtime_.write_word(stream_.handle(), ended_, static_cast<std::uint32_t>(number));
  return events_[number % places] = stream_.record();
}

void BulkGroup::break_off(std::uint64_t number, const Error& error) noexcept {
  watch_.fail(error);
  try {
    end(number);
  } catch (const std::exception&) {
    // The GPU itself has failed.
  }
}

void BulkGroup::finish(bool give_up) noexcept {
  if (!watched_) return;
  const Event last = events_[queued() % places];
  if (!give_up) {
    try {
      last.wait();
    } catch (const std::exception&) {
      // Whoever waited for one of them has heard of it.
    }
  }
  if (!all_ended())
    watch_.fail(Error(Exit::runtime, fmt::format("rank {} has given up {}", rank_of(me()), facts_.name),
                      "something else went wrong there"));
  const Deadline deadline = Deadline::in(grace);
  try {
    while (!all_ended() && !deadline.passed()) {
      last.passed();  // throws when the GPU has failed
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  } catch (const std::exception&) {
    // The GPU has failed: nothing runs there any more.
  }
  quiet_ = all_ended();
  if (!quiet_) log::warn("the stream of {} does not end; its memory is left alone", facts_.name);
  watch_.remove(*this);
  if (recorder_ != nullptr) recorder_->leave(place_);
  watched_ = false;
}

// ---- the watch's side

void BulkGroup::note_new_ones() {
  for (const std::uint64_t newest = queued(); noted_ < newest;) {
    Pending& operation = pending_[++noted_ % places];
    if (recorder_ != nullptr)
      operation.ordinal = recorder_->queued(place_, facts_.key, facts_.name, operation.kind, noted_,
                                            operation.wire_bytes, operation.enqueued_ns);
  }
}

std::optional<Error> BulkGroup::look() {
  // In this order: what has ended has begun.
  const std::uint32_t ended = read_word(ended_), begun = read_word(begun_);
  note_new_ones();
  if (failed_.load(std::memory_order_relaxed)) {
    if (reached(ended, noted_)) passed_.store(noted_);
    return std::nullopt;
  }
  if (auto error = trouble()) return error;
  while (passed_.load() < noted_ && reached(begun, passed_.load() + 1)) {
    const std::uint64_t number = passed_.load() + 1;
    if (started_ < number) {
      started_ = number;
      deadline_ = Clock::now() + limit_;
      if (recorder_ != nullptr) recorder_->started(place_, pending(number).ordinal);
    }
    if (auto error = disagreement(number, pending(number).what)) return error;
    if (!reached(ended, number)) {
      if (Clock::now() >= deadline_) return timed_out(number);
      break;
    }
    if (recorder_ != nullptr) recorder_->finished(place_, pending(number).ordinal, false);
    passed_.store(number);
  }
  return std::nullopt;
}

Error BulkGroup::timed_out(std::uint64_t number) const {
  Error error(Exit::runtime,
              fmt::format("{} did not finish within {} s", describe(number),
                          static_cast<double>(limit_.count()) / 1000),
              missing(number), "Has a peer died or fallen behind?");
  if (explain_ && recorder_ != nullptr)
    log::warn("{}; the flight record says: {}", error.what(), flight::to_text(recorder_->read()));
  return error;
}

void BulkGroup::stop(const Error& error) noexcept {
  if (failed_.load(std::memory_order_relaxed)) return;
  failure_.emplace(error);
  if (recorder_ != nullptr && busy()) {
    note_new_ones();
    recorder_->finished(place_, pending(passed_.load() + 1).ordinal, true);
  }
  failed_.store(true, std::memory_order_release);
  give_nothing_more(error);
}

}  // namespace holdfast::cuda
