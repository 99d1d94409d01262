#include "src/control/message.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/strict_json.hpp"
#include "src/control/base64.hpp"
#include "src/control/message_fields.hpp"

namespace holdfast::control {
namespace {

template <class Message>
concept Publishes = requires(Message message) {
  message.published;
};

// What follows the JSON in a line.
std::string behind(const auto&) { return {}; }
std::string behind_tab(std::string text) {
  text.insert(0, 1, '\t');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}
std::string behind(const RankVote& message) { return behind_tab(message.payload); }
std::string behind(const NodeVotes& message) { return behind_tab(message.payloads); }
std::string behind(const Publishes auto& message) { return "\t" + to_base64(message.published); }
void take_behind(auto&, std::string_view behind) {
  if (!behind.empty()) throw Refused("something follows the JSON object");
}
void take_behind(RankVote& message, std::string_view behind) {
  if (behind.empty()) throw Refused("the payload is missing");
  if (behind.size() > 1 + NodeVotes::max_bytes) throw Refused("the payload is too long");
  message.payload = behind.substr(1);
}
void take_behind(NodeVotes& message, std::string_view behind) {
  std::size_t bytes = 1;  // the tab
  for (const auto& vote : message.votes) bytes += as_size(vote.bytes);
  if (behind.size() != bytes || bytes > 1 + NodeVotes::max_bytes)
    throw Refused("the payloads are not as long as their votes say");
  message.payloads = behind.substr(1);
}

void take_behind(Publishes auto& message, std::string_view behind) {
  if (behind.empty() || !from_base64(behind.substr(1), max_published, message.published))
    throw Refused("what is published is not base64, or too long");
}

/// What may be read: one message, or one of several.
template <class Heard>
struct Reading {
  static_assert(name_on_wire<Heard> != nullptr, "every message has a name on the wire");
  template <class Out>
  static bool read(const std::string& name, const json& object, std::string_view behind,
                   std::optional<Out>& out) {
    if (name != name_on_wire<Heard>) return false;
    Heard message;
    FieldReader reader(object);
    fields(reader, message);
    take_behind(message, behind);
    out = std::move(message);
    return true;
  }
};
template <class... Message>
struct Reading<std::variant<Message...>> {
  template <class Out>
  static bool read(const std::string& name, const json& object, std::string_view behind,
                   std::optional<Out>& out) {
    return (Reading<Message>::read(name, object, behind, out) || ...);
  }
};

}  // namespace

const char* name_of(Phase phase) { return phase_names[as_size(phase)]; }
const char* name_of(RankHeard::What what) { return heard_names[as_size(what)]; }
const char* name_of(NodeHealth::Fitness fitness) { return fitness_names[as_size(fitness)]; }
std::optional<NodeHealth::Fitness> fitness_called(std::string_view name) {
  const auto found = std::find(fitness_names.begin(), fitness_names.end(), name);
  if (found == fitness_names.end()) return std::nullopt;
  return static_cast<NodeHealth::Fitness>(found - fitness_names.begin());
}

void NodeVotes::add(int rank, bool ok, std::string_view payload, std::int64_t stall_us) {
  votes.push_back({rank, ok, static_cast<std::int64_t>(payload.size()), stall_us});
  payloads += payload;
}

std::vector<std::string_view> NodeVotes::each_payload() const {
  std::vector<std::string_view> out;
  std::size_t at = 0;
  for (const auto& vote : votes) {
    out.push_back(std::string_view(payloads).substr(at, as_size(vote.bytes)));
    at += as_size(vote.bytes);
  }
  return out;
}

std::string encode(const Message& message) {
  return std::visit(
      [](const auto& m) {
        FieldWriter writer;
        fields(writer, m);
        json object = writer.take();
        object["m"] = name_on_wire<std::decay_t<decltype(m)>>;
        return object.dump(-1, ' ', false, json::error_handler_t::replace) + behind(m);
      },
      message);
}

template <class Heard>
std::optional<Heard> decode(std::string_view line, std::string& why) {
  std::optional<Heard> out;
  const auto end = std::min(line.find('\t'), line.size());  // the JSON of encode() has no tab
  const json object = json_from(line.substr(0, end));
  if (object.is_discarded() || !object.is_object()) return why = "it is not a JSON object", out;
  try {
    std::string name;
    FieldReader{object}("m", name, a_word);
    if (!Reading<Heard>::read(name, object, line.substr(end), out))
      throw Refused("no message here is called '" + name + "'");
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
template std::optional<PmixToAgent> decode(std::string_view, std::string&);
template std::optional<AgentToPmix> decode(std::string_view, std::string&);
template std::optional<AgentToRank> decode(std::string_view, std::string&);
template std::optional<CallerToAgent> decode(std::string_view, std::string&);
template std::optional<Hello> decode(std::string_view, std::string&);
template std::optional<Drain> decode(std::string_view, std::string&);
template std::optional<OrderTaken> decode(std::string_view, std::string&);
template std::optional<Answer> decode(std::string_view, std::string&);

}  // namespace holdfast::control
