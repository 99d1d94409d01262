#include "src/base/own_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OwnRun : public ::testing::Test {
 protected:
  OwnRun() {
    for (const auto& folder :
         {top, run.path, run.configs(), run.terms(), run.events(), run.logs(), run.checkpoints()}) {
      fs::create_directory(folder);
      ::chmod(folder.c_str(), 0750);
    }
    for (const auto& file : {run.config(), run.cluster(), run.secret(), run.events() / "0001.jsonl"})
      files::create_exclusively(file, "text", files::for_owner);
  }
  ~OwnRun() override { fs::remove_all(top); }
  std::string refusal() const {
    try {
      require_own_run(run);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::usage);
      return error.what();
    }
    return "";
  }
  void put_link_for(const fs::path& path) const {
    fs::rename(path, top / "aside");
    fs::create_symlink(top / "aside", path);
  }
  void mend(const fs::path& path) const {
    fs::remove(path);
    fs::rename(top / "aside", path);
  }

  fs::path top = fs::temp_directory_path() / ("holdfast-own-" + std::to_string(::getpid()));
  RunDir run{top / "run"};
};

TEST_F(OwnRun, IsTakenAsItIsMade) {
  EXPECT_EQ(refusal(), "");
  fs::create_symlink(run.path, top / "latest");
  EXPECT_NO_THROW(require_own_run({top / "latest"}));
  put_link_for(run.checkpoints());
  EXPECT_EQ(refusal(), "") << "checkpoints may lie elsewhere";
  EXPECT_NO_THROW(require_own_run({top / "nothing"}));
}

TEST_F(OwnRun, IsNotWhatOthersCanChange) {
  for (const auto& path : {run.path, run.config(), run.cluster(), run.secret(), run.events(), run.terms(),
                           run.logs(), run.checkpoints(), run.events() / "0001.jsonl"}) {
    struct stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    ::chmod(path.c_str(), 0702);
    EXPECT_THAT(refusal(), HasSubstr(path.string() + " can be changed by others: its mode is 0702"));
    EXPECT_THAT(refusal(), HasSubstr("chmod go-w"));
    ::chmod(path.c_str(), before.st_mode & 07777);
  }
  EXPECT_EQ(refusal(), "");
}

/// As from an archive.
TEST_F(OwnRun, HasNoLinks) {
  for (const auto& path : {run.config(), run.cluster(), run.secret(), run.events(), run.terms(), run.logs(),
                           run.configs(), run.events() / "0001.jsonl"}) {
    put_link_for(path);
    EXPECT_THAT(refusal(), HasSubstr(path.string() + " is a symbolic link"));
    mend(path);
  }
  EXPECT_EQ(refusal(), "");
  fs::create_directory_symlink(top, run.logs() / "attempt-0001");
  EXPECT_THAT(refusal(), HasSubstr("attempt-0001 is a symbolic link"));
}

TEST_F(OwnRun, IsNotThatOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t other = 61001;
  for (const auto& path : {run.path, run.config(), run.cluster(), run.secret(), run.events(), run.terms(),
                           run.checkpoints(), run.events() / "0001.jsonl"}) {
    ASSERT_EQ(::chown(path.c_str(), other, 0), 0);
    EXPECT_THAT(refusal(), HasSubstr(path.string() + " belongs to 61001, not to root"));
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(refusal(), "");
}

TEST_F(OwnRun, CouldBeReplacedWhereOthersCanWrite) {
  EXPECT_EQ(who_could_replace(run.path), "");
  ::chmod(top.c_str(), 0757);
  EXPECT_THAT(who_could_replace(run.path), HasSubstr(top.string() + " (its mode is 0757) could put another"));
  EXPECT_THAT(who_could_replace(run.path / "deeper/run"), HasSubstr(top.string()));
  ::chmod(top.c_str(), 01757);
  EXPECT_EQ(who_could_replace(run.path), "") << "sticky, as /tmp";
  ::chmod(top.c_str(), 0770);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(top.c_str(), 0, 61001), 0);
  ::chmod(top.c_str(), 0770);
  EXPECT_THAT(who_could_replace(run.path), HasSubstr("its mode is 0770"));
  ::chmod(top.c_str(), 0750);
  EXPECT_EQ(who_could_replace(run.path), "");
  ASSERT_EQ(::chown(top.c_str(), 61001, 0), 0);
  EXPECT_THAT(who_could_replace(run.path), HasSubstr("61001, whose " + top.string() + " is, could put"));
  ASSERT_EQ(::chown(top.c_str(), 0, 0), 0);
}

}  // namespace
}  // namespace holdfast
