#include "src/base/sandbox.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "src/base/as_size.hpp"

namespace holdfast {
namespace {
namespace fs = std::filesystem;

/// What `body` returns in a child that has entered the sandbox, whose words are those it writes to the pipe.
struct Sandboxed {
  int status = -1;  ///< of wait
  std::string said;
};
constexpr int not_offered = 77;
Sandboxed in_sandbox(const std::function<int(int pipe)>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    const auto why = enter_reading_sandbox(ends[1]);
    ::_exit(why ? not_offered : body(ends[1]));
  }
  ::close(ends[1]);
  Sandboxed result;
  char buffer[256];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    result.said.append(buffer, as_size(n));
  ::close(ends[0]);
  ::waitpid(child, &result.status, 0);
  return result;
}

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    const int status = in_sandbox([](int) { return 0; }).status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == not_offered) GTEST_SKIP() << "not offered here";
    ASSERT_EQ(status, 0);
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    std::ofstream(file_ = folder_ + "/file") << "text";
  }
  void TearDown() override {
    std::error_code none;
    fs::remove_all(folder_, none);
  }
  std::string folder_ = (fs::temp_directory_path() / "sandbox-XXXXXX").string(), file_;
};

TEST_F(Sandbox, AReaderReadsAndSaysWhatItHasFound) {
  const auto read = in_sandbox([&](int pipe) {
    std::ifstream file(file_);
    std::string text(std::size_t{1} << 22, ' ');  // memory of the kernel
    file >> text;
    return ::write(pipe, text.data(), text.size()) == 4 ? 0 : 1;
  });
  EXPECT_EQ(read.status, 0);
  EXPECT_EQ(read.said, "text");
  const auto aborted = in_sandbox([](int) -> int { ::abort(); });
  EXPECT_TRUE(WIFSIGNALED(aborted.status) && WTERMSIG(aborted.status) == SIGABRT) << aborted.status;
}

TEST_F(Sandbox, NothingElseIsLetThrough) {
  const pid_t parent = ::getpid();
  const char* file = file_.c_str();
  const std::string other = folder_ + "/other";
  char program[] = "/bin/true";
  char* const words[] = {program, nullptr};
  const struct {
    const char* what;
    std::function<long()> call;
  } cases[] = {
      {"a program", [&] { return ::execv(program, words); }},
      {"a process", [] { return ::fork(); }},
      {"a network", [] { return ::socket(AF_INET, SOCK_STREAM, 0); }},
      {"a local socket", [] { return ::socket(AF_UNIX, SOCK_STREAM, 0); }},
      {"a file to write", [&] { return ::open(file, O_WRONLY); }},
      {"a file to change", [&] { return ::open(file, O_RDWR); }},
      {"a file to cut", [&] { return ::open(file, O_RDONLY | O_TRUNC); }},
      {"a new file", [&] { return ::open(other.c_str(), O_RDONLY | O_CREAT, 0600); }},
      {"a file's end", [&] { return ::unlink(file); }},
      {"another name", [&] { return ::rename(file, other.c_str()); }},
      {"another mode", [&] { return ::chmod(file, 0777); }},
      {"a folder", [&] { return ::mkdir(other.c_str(), 0700); }},
      {"words elsewhere", [] { return ::write(STDERR_FILENO, "x", 1); }},
      {"a signal", [&] { return ::kill(parent, 0); }},
      {"another process", [&] { return ::ptrace(PTRACE_ATTACH, parent, nullptr, nullptr); }},
      {"code",
       [] {
         return ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
                    ? -1L
                    : 0L;
       }},
  };
  for (const auto& each : cases) {
    const auto tried = in_sandbox([&](int) { return each.call() < 0 ? errno : 0; });
    EXPECT_TRUE(WIFEXITED(tried.status) && WEXITSTATUS(tried.status) == EPERM)
        << each.what << ": " << tried.status;
  }
  EXPECT_EQ(fs::file_size(file_), 4u);
  EXPECT_FALSE(fs::exists(other));
}

}  // namespace
}  // namespace holdfast
