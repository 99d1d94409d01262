#include "src/control/message.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/control/message_fields.hpp"

namespace holdfast::control {
namespace {

/// What may be read: one message, or one of several.
template <class Heard>
struct Reading {
  static_assert(name_on_wire<Heard> != nullptr, "every message has a name on the wire");
  template <class Out>
  static bool read(const std::string& name, const json& object, std::optional<Out>& out) {
    if (name != name_on_wire<Heard>) return false;
    Heard message;
    FieldReader reader(object);
    fields(reader, message);
    out = std::move(message);
    return true;
  }
};
template <class... Message>
struct Reading<std::variant<Message...>> {
  template <class Out>
  static bool read(const std::string& name, const json& object, std::optional<Out>& out) {
    return (Reading<Message>::read(name, object, out) || ...);
  }
};

}  // namespace

const char* name_of(Phase phase) { return phase_names[as_size(phase)]; }
const char* name_of(NodeHealth::Fitness fitness) { return fitness_names[as_size(fitness)]; }
std::optional<NodeHealth::Fitness> fitness_called(std::string_view name) {
  const auto found = std::find(fitness_names.begin(), fitness_names.end(), name);
  if (found == fitness_names.end()) return std::nullopt;
  return static_cast<NodeHealth::Fitness>(found - fitness_names.begin());
}

std::string encode(const Message& message) {
  return std::visit(
      [](const auto& m) {
        FieldWriter writer;
        fields(writer, m);
        json object = writer.take();
        object["m"] = name_on_wire<std::decay_t<decltype(m)>>;
        return object.dump(-1, ' ', false, json::error_handler_t::replace);
      },
      message);
}

template <class Heard>
std::optional<Heard> decode(std::string_view line, std::string& why) {
  std::optional<Heard> out;
  const json object = json::parse(line, nullptr, false);
  if (object.is_discarded() || !object.is_object()) return why = "it is not a JSON object", out;
  try {
    std::string name;
    FieldReader{object}("m", name, a_word);
    if (!Reading<Heard>::read(name, object, out)) throw Refused("no message here is called '" + name + "'");
  } catch (const Refused& refused) {
    out.reset();
    why = refused.what();
  }
  return out;
}
template std::optional<Message> decode(std::string_view, std::string&);
template std::optional<AgentToLeader> decode(std::string_view, std::string&);
template std::optional<LeaderToAgent> decode(std::string_view, std::string&);
template std::optional<RankToAgent> decode(std::string_view, std::string&);
template std::optional<AgentToRank> decode(std::string_view, std::string&);
template std::optional<CallerToAgent> decode(std::string_view, std::string&);
template std::optional<Hello> decode(std::string_view, std::string&);
template std::optional<Drain> decode(std::string_view, std::string&);
template std::optional<OrderTaken> decode(std::string_view, std::string&);
template std::optional<Answer> decode(std::string_view, std::string&);
template std::optional<Exec> decode(std::string_view, std::string&);
template std::optional<Exited> decode(std::string_view, std::string&);

}  // namespace holdfast::control
