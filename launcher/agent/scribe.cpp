#include "launcher/agent/scribe.hpp"

#include <fmt/format.h>

#include "src/base/error.hpp"
#include "src/base/log.hpp"

namespace holdfast::launcher {

namespace {

constexpr Millis retry_pause{500};
constexpr Millis scribe_farewell{
    100};  // who resigns is an agent whose beats others wait for; the work owns all it needs
constexpr Millis worth_telling{5000};  // a page that took longer is an event of its own

double seconds(Millis time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Scribe::Scribe(control::Loop& loop, RunDir run, int epoch, std::shared_ptr<Journal> journal, Millis patience)
    : loop_(loop),
      run_(std::move(run)),
      epoch_(epoch),
      journal_(std::move(journal)),
      patience_(patience),
      worker_(loop, scribe_farewell) {}

void Scribe::put(Page page, Done done) {
  expects(!page_, "the last page is done");
  page_ = std::make_shared<Page>(std::move(page)), done_ = std::move(done);
  since_ = Clock::now(), last_error_.clear();
  write();
}

Millis Scribe::waits() const {
  return page_ ? std::chrono::duration_cast<Millis>(Clock::now() - since_) : Millis(0);
}

void Scribe::write() {
  worker_.ask(
      [run = run_, epoch = epoch_, journal = journal_, page = page_]() -> Tried {
        const auto passed_over = [&]() -> std::optional<Tried> {
          const int highest = highest_epoch(run);
          if (highest > epoch) return Tried{"a higher epoch exists", {}};
          // Our own number is there as long as the run directory is.
          if (highest < epoch) return Tried{{}, run.epochs().string() + " does not show this epoch's file"};
          return std::nullopt;
        };
        try {
          if (const auto trouble = passed_over()) return *trouble;
          if (!page->events.empty()) journal->write_all(page->events);
          page->events.clear();  // when the rest fails, they are not written twice
          // This process may have been stopped since it looked. Only when nobody leads yet after the write
          // will whoever leads next have read it; else it is void (succession.hpp), and nothing may follow
          // from it.
          if (const auto trouble = passed_over()) return *trouble;
          if (page->files) page->files();
          return {};
        } catch (const std::exception& error) {
          return {{}, error.what()};
        }
      },
      [this](const Tried& result) { tried(result); });
}

void Scribe::tried(const Tried& result) {
  if (!page_) return;  // given up meanwhile
  if (result.higher) return end(result.higher);
  if (!result.error) {
    if (waits() < worth_telling) return end(std::nullopt);
    log::warn("the run directory is back after {:.1f} s", seconds(waits()));
    const nlohmann::json back = {{"event", "shared_returned"},
                                 {"gone_s", seconds(waits())},
                                 {"evidence", last_error_.empty() ? "it did not answer" : last_error_}};
    // Told once it is over; the page itself is there already, so nothing waits for this.
    worker_.run([journal = journal_, back] {
      try {
        journal->write_all({back});
      } catch (const std::exception&) {  // gone again: the next page will say so
      }
    });
    return end(std::nullopt);
  }
  if (last_error_ != *result.error)
    log::warn("the run directory does not take a decision: {}", *result.error);
  last_error_ = *result.error;
  if (waits() > patience_) return end(last_error_);
  again_ = loop_.after(retry_pause, [this] { write(); });
}

void Scribe::tick() {
  // Nobody could take over from us while it hangs for all; when it hangs for this node alone, others can.
  if (page_ && waits() > patience_ && worker_.busy_for() > patience_)
    end("the run directory has not answered for " + fmt::format("{:.0f} s", seconds(waits())));
}

void Scribe::end(std::optional<std::string> trouble) {
  page_.reset();
  const auto done = std::exchange(done_, nullptr);
  done(trouble);
}

}  // namespace holdfast::launcher
