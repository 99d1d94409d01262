#pragma once
// One exception type for everything a person has to read: *problem (why) suggestion?*, with the exit code it
// leads to.
#include <stdexcept>
#include <string>
#include <string_view>

namespace holdfast {

/// Exit codes of every Holdfast program (docs/manual/failures.md, "Exit codes"). 128+n means: ended by signal
/// n.
enum class Exit : int {
  done = 0,
  runtime = 1,        ///< something failed at run time
  usage = 2,          ///< wrong command line or configuration
  impossible = 3,     ///< the plan cannot be carried out
  unhealthy = 4,      ///< a health check failed
  out_of_spares = 5,  ///< nothing left to replace a failed node
  transient = 75,     ///< requeue me (EX_TEMPFAIL)
  no_requeue = 93,    ///< deterministic failure: running it again fails again
};

class Error : public std::runtime_error {
 public:
  /// `problem` says what is wrong, `why` the evidence, `hint` what to do (a question or an imperative); the
  /// last two may be empty.
  Error(Exit exit, std::string problem, std::string why = {}, std::string hint = {});
  Exit exit() const { return exit_; }
  const std::string& problem() const { return problem_; }
  const std::string& why() const { return why_; }
  const std::string& hint() const { return hint_; }

 private:
  Exit exit_;
  std::string problem_, why_, hint_;
};

/// Error for a failed system call: the `why` is errno in words.
Error system_error(std::string problem, int error_number, std::string hint = {});

/// The nearest name in `known` to a mistyped one (edit distance at most a third of its length), or "".
template <class Names>
std::string nearest_name(std::string_view typed, const Names& known);

/// Programmer error: a contract was broken. Aborts the operation with std::logic_error, never a user's fault.
void expects(bool condition, const char* what);

std::size_t edit_distance(std::string_view a, std::string_view b);

template <class Names>
std::string nearest_name(std::string_view typed, const Names& known) {
  std::string best;
  std::size_t best_distance = typed.size() / 3 + 2;
  for (const auto& name : known) {
    const std::size_t d = edit_distance(typed, name);
    if (d < best_distance) {
      best_distance = d;
      best = std::string(name);
    }
  }
  return best;
}

}  // namespace holdfast
