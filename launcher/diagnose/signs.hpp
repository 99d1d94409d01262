#pragma once
// The kinds of signs that explain a failure, by name. A kind tells what one sign means by itself;
// diagnosis.hpp weighs several of them.
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
  nothing   ///< a trace, not a cause
};

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

}  // namespace holdfast::launcher
