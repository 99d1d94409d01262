#include "src/control/message.hpp"

#include "src/control/message_fields.hpp"

namespace holdfast::control {
namespace {

/// Reads `body` into `out` if it is a T.
template <class T>
bool read_as(const std::string& name, const json& body, std::optional<Message>& out) {
  if (name != name_on_wire<T>) return false;
  T message;
  FieldReader reader(body);
  fields(reader, message);
  out = std::move(message);
  return true;
}
template <class... T>
void read_any(std::variant<T...>*, const std::string& name, const json& body, std::optional<Message>& out) {
  static_assert(((name_on_wire<T> != nullptr) && ...), "every message has a name on the wire");
  if (!(read_as<T>(name, body, out) || ...))
    throw Refused("no message is called '" + name.substr(0, 64) + "'");
}

}  // namespace

const char* name_of(Phase phase) { return phase_names[static_cast<std::size_t>(phase)]; }

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

std::optional<Message> decode(std::string_view line, std::string& why) {
  std::optional<Message> out;
  const json object = json::parse(line, nullptr, false);
  if (object.is_discarded() || !object.is_object()) return why = "it is not a JSON object", out;
  try {
    std::string name;
    FieldReader{object}("m", name, a_word);
    read_any(static_cast<Message*>(nullptr), name, object, out);
  } catch (const Refused& refused) {
    out.reset();
    why = refused.what();
  }
  return out;
}

}  // namespace holdfast::control
