#pragma once
// Who speaks for a rank. The address and the key of a rank are in its environment, which every process that
// it starts inherits: a worker that loads data, too, may open the client. One process is heard. Pure.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace holdfast::launcher {

/// A process, whose pid the kernel may give to another one later.
struct ProcessId {
  pid_t pid = 0;  ///< not positive: it cannot be seen from here, and this is what it says of itself
  std::int64_t started = 0;  ///< in ticks since the node's start
  bool operator==(const ProcessId&) const = default;
};

struct ProcessFacts {
  pid_t parent = 0;
  std::int64_t started = 0;
  bool blank_in_name = false;
};
/// Nothing: it has ended.
using LookUp = std::function<std::optional<ProcessFacts>(pid_t)>;

enum class Claim {
  speaks,  ///< it is heard from now on, and nobody else
  child,   ///< of the process that speaks
  other    ///< another process speaks, and lives
};
/// A process has opened the client, or has connected again. `speaker`: who speaks until now, if anybody;
/// `connected`: its connection is open. A parent of the speaker takes over: its worker has only opened first.
Claim claim(const ProcessId& opener, const std::optional<ProcessId>& speaker, bool connected,
            const LookUp& facts);

}  // namespace holdfast::launcher
