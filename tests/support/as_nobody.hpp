#pragma once
// What another user would see: root may look into every folder, whatever its mode.
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <functional>
#include <string>

#include "src/base/as_size.hpp"

namespace holdfast::test {

/// What `says` returns, or the text of what it throws, in a process of a user without any rights; where the
/// tests do not run as root, in one of this user.
inline std::string as_nobody(const std::function<std::string()>& says) {
  constexpr unsigned nobody = 65534;
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      const bool other =
          ::geteuid() != 0 || (::setgroups(0, nullptr) == 0 && ::setresgid(nobody, nobody, nobody) == 0 &&
                               ::setresuid(nobody, nobody, nobody) == 0);
      text = other ? says() : "the user cannot be changed";
    } catch (const std::exception& error) {
      text = error.what();
    }
    ::_exit(::write(pipe[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(pipe[1]);
  std::string out;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(pipe[0], part.data(), part.size())) > 0;)
    out.append(part.data(), as_size(n));
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  return out;
}

}  // namespace holdfast::test
