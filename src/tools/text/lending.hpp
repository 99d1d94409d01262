#pragma once
// Working memory for calls that may come from many threads at once: as many pieces of it as there were calls
// at a time, each used again by a later call.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace holdfast::text {

template <class T>
class Lending {
 public:
  /// Comes back when it goes out of scope, before the Lending does.
  class Loan {
   public:
    Loan(Lending& owner, std::unique_ptr<T> lent) : owner_(owner), lent_(std::move(lent)) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
      const std::lock_guard guard(owner_.lock_);
      owner_.idle_.push_back(std::move(lent_));
    }
    T& operator*() const { return *lent_; }
    T* operator->() const { return lent_.get(); }

   private:
    Lending& owner_;
    std::unique_ptr<T> lent_;
  };

  /// `make()` gives a std::unique_ptr<T> where none is idle.
  template <class Make>
  Loan borrow(const Make& make) {
    {
      const std::lock_guard guard(lock_);
      if (!idle_.empty()) {
        auto found = std::move(idle_.back());
        idle_.pop_back();
        return Loan(*this, std::move(found));
      }
    }
    return Loan(*this, make());
  }

 private:
  std::mutex lock_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace holdfast::text
