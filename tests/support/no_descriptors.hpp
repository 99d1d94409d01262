#pragma once
// A full descriptor table.
#include <sys/resource.h>

namespace holdfast::test {

/// Until it ends, this process can open no file.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace holdfast::test
