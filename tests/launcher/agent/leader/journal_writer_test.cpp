// Decisions reach the disk in order, and wait while it is unreachable.
#include "launcher/agent/leader/journal_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/control/loop_thread.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<LogEntry> notes(const std::vector<std::string>& kinds) {
  std::vector<LogEntry> out;
  for (const auto& kind : kinds) out.push_back({{}, UnknownEvent{{{"event", kind}}}});
  return out;
}

class JournalWriterTest : public testing::Test {
 protected:
  JournalWriterTest() : run{folder.path / "run"} {
    for (const auto& path : {run.terms(), run.events()}) files::fs::create_directories(path);
    take_term(run, 3, "n0");
    journal = std::make_shared<Journal>(run, 3);
  }
  ~JournalWriterTest() override {
    loop.call([this] { writer.reset(); });
    loop.end();
  }
  void open(Millis patience) {
    loop.call([&] { writer = std::make_unique<JournalWriter>(loop.loop, run, 3, journal, patience); });
  }
  void put(JournalWriter::Batch batch) {
    loop.call([&] {
      done.reset();
      writer->put(std::move(batch),
                  [this](const std::optional<std::string>& trouble) { done = trouble.value_or("written"); });
    });
  }
  bool ends() {
    return loop.until([this] { return done.has_value(); });
  }
  /// Makes the shared file system unreachable, and reachable again, by renaming it.
  void hide() { files::fs::rename(run.path, folder.path / "hidden"); }
  void show() { files::fs::rename(folder.path / "hidden", run.path); }
  std::vector<std::string> events() {
    std::vector<std::string> out;
    for (const auto& event : read_events(run)) out.push_back(kind_of(event.event));
    return out;
  }

  control::test::Folder folder;
  RunDir run;
  std::shared_ptr<Journal> journal;
  control::test::LoopThread loop;
  std::unique_ptr<JournalWriter> writer;
  std::optional<std::string> done;
};

TEST_F(JournalWriterTest, ABatchIsThereWhenItsActionsBegin) {
  open(Millis(1000));
  put({notes({"one", "two"}), [path = run.result(), events = run.events()] {
         // The events come first.
         files::replace_atomically(path, files::read_text(events / "0003.jsonl"));
       }});
  ASSERT_TRUE(ends());
  EXPECT_EQ(*done, "written");
  EXPECT_THAT(events(), ElementsAre("one", "two"));
  EXPECT_THAT(files::read_text(run.result()), HasSubstr("two"));
}

TEST_F(JournalWriterTest, AHigherTermEndsItBeforeAnythingIsWritten) {
  open(Millis(1000));
  take_term(run, 4, "n1");
  put({notes({"one"}), nullptr});
  ASSERT_TRUE(ends());
  EXPECT_THAT(*done, HasSubstr("higher term"));
  EXPECT_TRUE(events().empty());
}

TEST_F(JournalWriterTest, ATermThatIsRenouncedEndsNothing) {
  open(Millis(60000));
  take_term(run, 4, "n1");
  put({notes({"one"}), nullptr});
  std::this_thread::sleep_for(Millis(300));
  EXPECT_TRUE(events().empty()) << "nothing is written while a higher term may have a leader";
  renounce_term(run, 4, "n1");
  ASSERT_TRUE(ends());
  EXPECT_EQ(*done, "written");
  EXPECT_EQ(events().size(), 1u);
}

TEST_F(JournalWriterTest, WaitsWhileTheRunDirectoryIsGone) {
  open(Millis(60000));
  put({notes({"before"}), nullptr});
  ASSERT_TRUE(ends());
  hide();
  put({notes({"during"}), nullptr});
  std::this_thread::sleep_for(Millis(300));
  loop.call([this] {
    writer->tick();
    EXPECT_FALSE(done) << "a term that cannot be seen is no higher one";
    EXPECT_GE(writer->waits(), Millis(300));
  });
  show();
  ASSERT_TRUE(ends());
  EXPECT_EQ(*done, "written");
  EXPECT_THAT(events(), ElementsAre("before", "during")) << "each once";
}

TEST_F(JournalWriterTest, ResignsWhenItStaysGone) {
  open(Millis(700));
  hide();
  put({notes({"during"}), nullptr});
  ASSERT_TRUE(ends());
  EXPECT_THAT(*done, HasSubstr("term"));
  show();
  EXPECT_TRUE(events().empty());
}

TEST_F(JournalWriterTest, AHangEndsThePatienceToo) {
  open(Millis(200));
  auto gate = std::make_shared<std::promise<void>>();
  auto opened = std::make_shared<std::future<void>>(gate->get_future());
  put({{}, [opened] { opened->wait(); }});
  ASSERT_TRUE(loop.until([this] {
    writer->tick();
    return done.has_value();
  }));
  EXPECT_THAT(*done, HasSubstr("not answered"));
  gate->set_value();
}

TEST_F(JournalWriterTest, WhatFailsHalfWayIsWrittenOnce) {
  open(Millis(60000));
  auto tries = std::make_shared<int>(0);
  put({notes({"one"}), [tries] {
         if (++*tries == 1) throw Error(Exit::runtime, "the disk hiccups");
       }});
  ASSERT_TRUE(ends());
  EXPECT_EQ(*done, "written");
  EXPECT_EQ(*tries, 2);
  EXPECT_THAT(events(), ElementsAre("one"));
}

}  // namespace
}  // namespace holdfast::launcher
