#pragma once
// What a leader puts on the shared file system, in order, beside its event loop: beats go on while a disk
// syncs, or while the file system is gone for a minute.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/supervise/journal.hpp"
#include "src/control/worker.hpp"

namespace holdfast::launcher {

class Scribe {
 public:
  /// Put down whole before anything that follows from it is done.
  struct Page {
    std::vector<nlohmann::json> events;  ///< for the log
    std::function<void()> files;         ///< after the events: a folder, a result. It owns what it touches.
  };
  /// nothing: the page is there. Else why the leader must resign: a higher term exists, or the file system
  /// has not answered for `patience`.
  using Done = std::function<void(const std::optional<std::string>& trouble)>;
  /// `term`: looked for before and after every page; a higher one ends it. While none can be seen at all,
  /// the page waits.
  Scribe(control::Loop& loop, RunDir run, int term, std::shared_ptr<Journal> journal,
         Millis patience = Millis(120000));

  /// One page at a time.
  void put(Page page, Done done);
  /// Since when the page that is being written waits.
  Millis waits() const;
  /// To be called now and then: a file system may also hang, and then nothing comes back.
  void tick();

 private:
  struct Tried {
    std::optional<std::string> higher, error;
  };
  void write();
  void tried(const Tried& result);
  void end(std::optional<std::string> trouble);

  control::Loop& loop_;
  RunDir run_;
  int term_;
  std::shared_ptr<Journal> journal_;
  Millis patience_;
  std::shared_ptr<Page> page_;
  Done done_;
  Clock::time_point since_;
  std::string last_error_;
  control::Loop::Handle again_;
  control::Worker worker_;
};

}  // namespace holdfast::launcher
