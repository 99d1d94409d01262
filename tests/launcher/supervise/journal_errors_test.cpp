// Every call of a takeover and of a decision that concerns the run directory fails once, with every error
// that storage may answer: nobody takes a part of the event log for all of it, and nothing is written twice.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/supervise/journal.hpp"
#include "src/base/error.hpp"
#include "tests/control/loop_thread.hpp"
#include "tests/launcher/record/log_entry.hpp"
#include "tests/support/traced.hpp"

namespace holdfast::launcher {
namespace {

using holdfast::test::run_failing;
using holdfast::test::Traced;

constexpr int good = 0, unknown = 4, wrong = 5;

class JournalErrors : public testing::TestWithParam<int> {
 protected:
  JournalErrors() : run{folder_.path / "run"} {
    for (const auto& path : {run.terms(), run.events()}) files::fs::create_directories(path);
    for (int term = 1; term <= 3; ++term) {
      take_term(run, term, "n0");
      Journal(run, term).write_all({test::entry({{"event", "leader_elected"}}), event(term)});
    }
    renounce_term(run, 3, "n0");
  }
  static LogEntry event(int number) { return {{}, UnknownEvent{{{"event", "note"}, {"number", number}}}}; }
  /// Calls `body` with each of its calls failing; what it may end with besides `good` is `unknown`.
  void each_call(const std::function<int()>& body) {
    int at = 0, unsure = 0;
    for (;; ++at) {
      const Traced traced = run_failing(
          run.path,
          [&] {
            try {
              return body();
            } catch (const Error&) {
              return unknown;
            }
          },
          at, GetParam());
      if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
      EXPECT_TRUE(traced.exit_code == good || traced.exit_code == unknown)
          << "call " << at << " (" << traced.struck << "): " << traced.exit_code;
      if (traced.struck.empty()) break;
      unsure += traced.exit_code == unknown;
    }
    EXPECT_GT(at, 4);
    EXPECT_GT(unsure, 2);
  }
  std::vector<int> numbers() const {
    std::vector<int> out;
    for (const auto& e : read_events(run))
      if (kind_of(e.event) == "note") out.push_back(to_json(e)["number"]);
    return out;
  }

  control::test::Folder folder_;
  RunDir run;
};

TEST_P(JournalErrors, TheEventLogIsReadWholeOrNotAtAll) {
  const auto all = read_events(run).size();
  each_call([&] { return read_events(run).size() == all ? good : wrong; });
}

TEST_P(JournalErrors, TheHighestTermIsKnownOrNot) {
  each_call([&] { return highest_term(run) == 3 && highest_valid_term(run) == 2 ? good : wrong; });
}

TEST_P(JournalErrors, ADecisionIsWrittenOnce) {
  for (int at = 0;; ++at) {
    const int number = 100 + at;
    const auto before = numbers();
    const Traced traced = run_failing(
        run.path,
        [&] {
          try {
            Journal journal(run, 2);
            for (int tries = 0; tries < 2; ++tries) {
              try {
                journal.write_all({event(number), event(-number)});
                return good;
              } catch (const Error&) {
              }
            }
          } catch (const Error&) {
          }
          return unknown;
        },
        at, GetParam());
    if (!traced.traced) GTEST_SKIP() << "tracing is not allowed here";
    auto expected = before;
    if (traced.exit_code == good)
      expected.insert(expected.end() - 1, {number, -number});  // before that of term 3
    EXPECT_EQ(numbers(), expected) << "call " << at << " (" << traced.struck << "): " << traced.exit_code;
    if (traced.struck.empty()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, JournalErrors,
                         testing::Values(EIO, ESTALE, EACCES, ENOSPC, EDQUOT, ETIMEDOUT, ELOOP),
                         [](const auto& suite) { return std::string(::strerrorname_np(suite.param)); });

}  // namespace
}  // namespace holdfast::launcher
