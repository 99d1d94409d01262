#pragma once
// What a rank's end means by itself: its exit code or signal, and the words it had. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "launcher/diagnose/signs.hpp"

namespace holdfast::launcher {

struct Meaning {
  const SignKind* kind = nullptr;  ///< never null
  std::string line;                ///< of its words, the one that says so; "": they say nothing
  std::vector<int> peers;          ///< ranks that it names while it complains of a lost peer
};

/// `status`: exit code, 128 + signal, -1: vanished. `said`: an error, or the last lines of a log; any text,
/// any length. Its own trouble weighs more than a peer's, and words more than the way it ended. `rank`: the
/// speaker.
Meaning meaning_of(int rank, int status, std::string_view said);

}  // namespace holdfast::launcher
