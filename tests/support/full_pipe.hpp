#pragma once
// Something that really blocks whoever writes to it, until somebody reads: a pipe that is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"

namespace holdfast {

class FullPipe {
 public:
  FullPipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    out_ = files::Fd(ends[0]);
    in_ = files::Fd(ends[1]);
    const int flags = ::fcntl(in(), F_GETFL);
    ::fcntl(in(), F_SETFL, flags | O_NONBLOCK);
    const std::string block(4096, '.');
    while (::write(in(), block.data(), block.size()) > 0) full_ += block.size();
    ::fcntl(in(), F_SETFL, flags);
  }
  ~FullPipe() { rest(); }

  int in() const { return in_.get(); }
  /// Blocks until drain().
  void write(std::size_t bytes) const { files::append_all(in(), std::string(bytes, '!'), "a full pipe"); }
  /// From now on somebody reads.
  void drain() {
    if (reader_.joinable() || !in_) return;
    reader_ = std::thread([this] {
      std::array<char, 4096> buffer{};
      for (ssize_t n = 0; (n = ::read(out_.get(), buffer.data(), buffer.size())) > 0;)
        text_.append(buffer.data(), as_size(n));
    });
  }
  /// Closes it, reads to the end, and returns what was written since it was full. Copies of in() must be
  /// closed before.
  std::string rest() {
    drain();
    in_.reset();
    if (reader_.joinable()) reader_.join();
    return text_.substr(full_);
  }

 private:
  files::Fd in_, out_;
  std::size_t full_ = 0;
  std::string text_;
  std::thread reader_;
};

}  // namespace holdfast
