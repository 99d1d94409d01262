#pragma once
// Events for tests, as JSON that names only the fields that matter.
#include <nlohmann/json.hpp>

#include "launcher/record/events.hpp"

namespace holdfast::launcher::test {

/// An event of this kind whose fields have their defaults; of an unknown kind, without fields.
template <std::size_t i = 0>
Event plain_event(const std::string& kind) {
  using Candidate = std::variant_alternative_t<i, Event>;
  if constexpr (std::is_same_v<Candidate, UnknownEvent>)
    return UnknownEvent{{{"event", kind}}};
  else
    return kind == Candidate::about.kind ? Event(Candidate()) : plain_event<i + 1>(kind);
}

/// What `named` does not name has its default.
inline LogEntry entry(const nlohmann::json& named) {
  nlohmann::json whole = to_json(LogEntry{{}, plain_event(named.value("event", ""))});
  whole.update(named);
  return entry_from_json(whole);
}

}  // namespace holdfast::launcher::test
