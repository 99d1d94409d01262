#include "launcher/agent/leader/journal_writer.hpp"

#include <fmt/format.h>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {

namespace {

constexpr Millis retry_pause{500};
// How long the destructor waits for the worker. The agent of a leader that resigns must go on sending
// heartbeats, and the work owns all it needs.
constexpr Millis journal_shutdown_limit{100};
constexpr Millis worth_an_event{5000};  // a batch that took longer is recorded

double seconds(Millis time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

JournalWriter::JournalWriter(control::Loop& loop, RunDir run, int term, std::shared_ptr<Journal> journal,
                             Millis patience, Millis renounce_limit)
    : loop_(loop),
      run_(std::move(run)),
      term_(term),
      journal_(std::move(journal)),
      patience_(patience),
      renounce_limit_(renounce_limit),
      unix_offset_(loop.unix_now() - loop.steady_seconds()),
      worker_(loop, journal_shutdown_limit) {}

void JournalWriter::put(Batch batch, Done done) {
  expects(!batch_, "the last batch is done");
  batch_ = std::make_shared<Batch>(std::move(batch));
  done_ = std::move(done);
  since_ = loop_.now();
  last_error_.clear();
  write();
}

Millis JournalWriter::waits() const {
  return batch_ ? std::chrono::duration_cast<Millis>(loop_.now() - since_) : Millis(0);
}

void JournalWriter::write() {
  worker_.ask(
      [run = run_, term = term_, journal = journal_, batch = batch_]() -> Tried {
        const auto replaced = [&]() -> std::optional<Tried> {
          const int highest = highest_valid_term(run, term);
          if (highest > term) return Tried{"a higher term exists", {}};
          // The file of our own term is there as long as the run directory is.
          if (highest < term) return Tried{{}, run.terms().string() + " does not show this term's file"};
          return std::nullopt;
        };
        try {
          if (const auto trouble = replaced()) return *trouble;
          if (!batch->entries.empty()) journal->write_all(batch->entries);
          batch->entries.clear();  // when the rest fails, they are not written twice
          // This process may have been stopped between the check and the write. Only when no higher term
          // exists after the write will the next leader have read the events; else they are void
          // (valid_events.hpp), and must not be acted upon.
          if (const auto trouble = replaced()) return *trouble;
          if (batch->result) batch->result();
          return {};
        } catch (const std::exception& error) {
          return {{}, error.what()};
        }
      },
      [this](const Tried& result) { tried(result); });
}

void JournalWriter::tried(const Tried& result) {
  if (!batch_) return;  // it was given up meanwhile
  // Its taker may be about to renounce it. Until then nothing is acted upon.
  if (!result.higher) higher_since_.reset();
  if (result.higher && !higher_since_) higher_since_ = loop_.now();
  if (result.higher && loop_.now() - *higher_since_ >= renounce_limit_) return end(result.higher);
  if (!result.error && !result.higher) {
    if (waits() < worth_an_event) return end(std::nullopt);
    log::warn("the run directory is back after {}", duration_text(seconds(waits())));
    const events::SharedReturned back{seconds(waits()),
                                      last_error_.empty() ? "it did not answer" : last_error_};
    // Recorded once it is over; the batch itself is on disk already, so nothing waits for this event.
    worker_.run([journal = journal_, back, unix = loop_.steady_seconds() + unix_offset_] {
      try {
        journal->write(back, unix);
      } catch (const std::exception&) {  // the run directory is gone again: the next batch records it
      }
    });
    return end(std::nullopt);
  }
  const std::string& why = result.higher ? *result.higher : *result.error;
  if (last_error_ != why) log::warn("a decision cannot be written to the run directory: {}", why);
  last_error_ = why;
  if (waits() > patience_) return end(last_error_);
  again_ = loop_.after(retry_pause, [this] { write(); });
}

void JournalWriter::tick() {
  if (batch_ && waits() > patience_ && worker_.busy_for() > patience_)
    end("the run directory has not answered for " + duration_text(seconds(waits())));
}

void JournalWriter::end(std::optional<std::string> trouble) {
  batch_.reset();
  const auto done = std::exchange(done_, nullptr);
  done(trouble);
}

}  // namespace holdfast::launcher
