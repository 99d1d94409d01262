#pragma once
// The kinds of signs that explain a failure, by name. A kind tells what one sign means by itself;
// diagnosis.hpp weighs several of them. Who has written a sign decides what may follow from it: verdict_of().
#include <optional>
#include <string>
#include <vector>

#include "src/control/message.hpp"

namespace holdfast::launcher {

/// Where a sign puts the cause.
enum class Blame {
  node,     ///< the node's hardware or system: another node would not fail in this way
  program,  ///< the program would fail on any node
  shared,   ///< the shared file system, or the network as a whole: no node in particular
  nothing,  ///< a trace, not a cause
  claim     ///< the program says that it is the node, and nothing of the node itself shows it
};

/// As events name it.
const char* name_of(Blame blame);

struct SignKind {
  const char* name;  ///< Sign::kind
  Blame blame;
  bool ends_node;      ///< the node must not be used again in this job
  int weight;          ///< of two signs of the same moment the heavier one is the cause; 0: never a cause
  const char* cause;   ///< short and stable, for events and reports; several kinds may share one
  const char* says;    ///< for people
  const char* advice;  ///< for the administrator; "": none
};
/// Nothing for a kind that this version does not know.
const SignKind* kind_called(const std::string& name);
const std::vector<SignKind>& sign_kinds();

/// Who can write a sign.
enum class Writer {
  node,    ///< the agent, from the kernel, NVML, links and file systems of its node
  program  ///< the end of a rank: its exit code, its own report, its output. Any text may stand there
};
struct SignVerdict {
  Blame blame = Blame::nothing;
  bool ends_node = false;  ///< the node must not be used again in this job
};
/// What a sign of this kind says of its node. What a program writes may start a look at the node and another
/// attempt; it never makes the node leave, and never counts as a failure of its hardware.
SignVerdict verdict_of(const SignKind& kind, Writer writer);

}  // namespace holdfast::launcher
