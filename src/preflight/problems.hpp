#pragma once
// What is wrong with a job, found before it runs: all of it together, not one thing for each try.
#include <string>
#include <utility>
#include <vector>

#include "src/base/errors.hpp"

namespace holdfast::preflight {

class Problems {
 public:
  /// Keeps what `act` throws as Error. Whether it threw nothing.
  template <class Act>
  bool look(Act&& act) {
    return everywhere_.of(std::forward<Act>(act));
  }
  void add(const Error& error) { everywhere_.add(error); }
  /// What is wrong on this machine, and may be right on another: a plan can be made all the same.
  void add_of_this_machine(const Error& error) { here_.add(error); }
  /// What may be wrong, but is refused by nobody.
  void doubt(std::string sentence) { doubts_.push_back(std::move(sentence)); }

  const std::vector<Error>& of_this_machine() const { return here_.all(); }
  const std::vector<std::string>& doubts() const { return doubts_; }
  std::vector<Error> all() const;
  /// Throws Errors for all of them, or for those that every machine would find.
  void refuse() const;
  void refuse_but_those_of_this_machine() const { everywhere_.refuse(); }

 private:
  ErrorList everywhere_, here_;
  std::vector<std::string> doubts_;
};

}  // namespace holdfast::preflight
