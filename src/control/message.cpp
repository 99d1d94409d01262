#include "src/control/message.hpp"

#include <algorithm>

#include "src/control/wire_agent.hpp"
#include "src/control/wire_rank.hpp"

namespace holdfast::control {

using namespace wire;

namespace {

template <class T>
bool try_read(const std::string& name, const json& body, std::optional<Message>& out) {
  if (name != Wire<T>::name) return false;
  out = Wire<T>::read(body);
  return true;
}
template <class... T>
void read_any(std::variant<T...>*, const std::string& name, const json& body, std::optional<Message>& out) {
  if (!(try_read<T>(name, body, out) || ...))
    throw Refused("no message is called '" + name.substr(0, 64) + "'");
}

}  // namespace

const char* name_of(Phase phase) { return phase_names[static_cast<std::size_t>(phase)]; }
const char* name_of(NodeHealth::Fitness fitness) { return fitness_names[static_cast<std::size_t>(fitness)]; }
std::optional<NodeHealth::Fitness> fitness_called(std::string_view name) {
  const auto found = std::find(fitness_names.begin(), fitness_names.end(), name);
  if (found == fitness_names.end()) return std::nullopt;
  return static_cast<NodeHealth::Fitness>(found - fitness_names.begin());
}

std::string encode(const Message& message) {
  return std::visit(
      [](const auto& m) {
        json j = Wire<std::decay_t<decltype(m)>>::write(m);
        j["m"] = Wire<std::decay_t<decltype(m)>>::name;
        return j.dump(-1, ' ', false, json::error_handler_t::replace);
      },
      message);
}

std::optional<Message> decode(std::string_view line, std::string& why) {
  std::optional<Message> out;
  const json j = json::parse(line, nullptr, false);
  if (j.is_discarded() || !j.is_object()) return why = "it is not a JSON object", out;
  try {
    read_any(static_cast<Message*>(nullptr), text_of(j, "m", 64), j, out);
  } catch (const Refused& refused) {
    out.reset();
    why = refused.what();
  }
  return out;
}

}  // namespace holdfast::control
