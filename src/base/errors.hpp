#pragma once
// Several errors that a person should read together.
#include <utility>
#include <vector>

#include "src/base/error.hpp"

namespace holdfast {

/// Not empty. Who knows only Error sees the first of those with Exit::usage, or else the first: what is to be
/// corrected before anything follows from the rest.
class Errors : public Error {
 public:
  explicit Errors(std::vector<Error> all);
  const std::vector<Error>& all() const { return all_; }

 private:
  std::vector<Error> all_;
};

/// Keeps what is thrown as Error.
class ErrorList {
 public:
  /// Whether `act` threw nothing.
  template <class Act>
  bool of(Act&& act) {
    try {
      std::forward<Act>(act)();
      return true;
    } catch (const Errors& errors) {
      for (const Error& error : errors.all()) add(error);
    } catch (const Error& error) {
      add(error);
    }
    return false;
  }
  /// What was said already is not said again.
  void add(const Error& error);
  const std::vector<Error>& all() const { return all_; }
  /// Throws Errors when there are any.
  void refuse() const;

 private:
  std::vector<Error> all_;
};

}  // namespace holdfast
