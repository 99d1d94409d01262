#pragma once
// What the end of a rank means by itself: its exit code or signal, and its output. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "launcher/diagnose/signs.hpp"

namespace holdfast::launcher {

/// An exit code of Holdfast that is used on purpose: another try on any node ends the same way.
bool is_final(int status);

struct Meaning {
  const SignKind* kind = nullptr;  ///< never null
  std::string line;                ///< the line of its output that shows it; "": none does
  std::vector<int> peers;          ///< ranks that a message about a lost peer names
};

/// `status`: exit code, 128 + signal, -1: vanished. `said`: an error, or the last lines of a log; any text of
/// any length. An error of its own weighs more than a lost peer, and a message more than the status. `rank`:
/// the rank that ended. `our_codes`: Holdfast's exit codes mean the same in it (RankEnd).
Meaning meaning_of(int rank, int status, std::string_view said, bool our_codes = false);

}  // namespace holdfast::launcher
