#include "src/control/session.hpp"

#include <nlohmann/json.hpp>

#include "src/base/strict_json.hpp"

namespace holdfast::control {
namespace {
using nlohmann::json;

std::string text_field(const json& j, const char* name) {
  const auto it = j.is_object() ? j.find(name) : j.end();
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
std::optional<std::int64_t> number_field(const json& j, const char* name) {
  const auto it = j.find(name);
  return it != j.end() && it->is_number_integer() ? std::optional(it->get<std::int64_t>()) : std::nullopt;
}
std::string another_version(std::int64_t theirs) {
  return "the other end speaks version " + std::to_string(theirs) + " of the protocol, and this one " +
         std::to_string(oldest_protocol_version) + " to " + std::to_string(protocol_version);
}
bool proves(const std::string& given, const std::string& wanted) {
  Key a{}, b{};
  return from_hex(given, a) && from_hex(wanted, b) && same(a, b);
}
}  // namespace

Session::Session(End end, const Key& secret, std::optional<RankId> as)
    : end_(end), secret_(secret), rank_(as) {
  (end == End::server ? server_nonce_ : client_nonce_) = to_hex(random_key());
}

std::optional<std::string> Session::opening() const {
  if (end_ == End::client) return std::nullopt;
  return json{{"holdfast", protocol_version}, {"oldest", oldest_protocol_version}, {"nonce", server_nonce_}}
      .dump();
}

std::string Session::proof(const char* whose) const {
  return to_hex(mac(secret_, whose + server_nonce_ + client_nonce_));
}

void Session::establish() {
  session_ = mac(secret_, "session" + server_nonce_ + client_nonce_);
  established_ = true;
}

bool Session::handshake(std::string_view line, std::optional<std::string>& answer, std::string& why) {
  answer.reset();
  const json j = json_from(line);
  if (j.is_discarded() || !j.is_object()) return why = "the other end does not speak this protocol", false;
  Key nonce{};
  if (end_ == End::client && server_nonce_.empty()) {
    const auto version = number_field(j, "holdfast");
    if (!version) return why = "the other end does not speak this protocol", false;
    if (*version < oldest_protocol_version || number_field(j, "oldest").value_or(*version) > protocol_version)
      return why = another_version(*version), false;
    server_nonce_ = text_field(j, "nonce");
    if (!from_hex(server_nonce_, nonce)) return why = "the other end sent a malformed challenge", false;
    json mine = {{"holdfast", protocol_version}, {"nonce", client_nonce_}, {"proof", proof("client")}};
    if (rank_) mine["rank"] = rank_->rank, mine["attempt"] = rank_->attempt;
    answer = mine.dump();
    return true;
  }
  if (end_ == End::client) {
    if (!proves(text_field(j, "proof"), proof("server")))
      return why = "the agent does not know this run's secret", false;
    establish();
    return true;
  }
  const auto version = number_field(j, "holdfast").value_or(1);
  if (version < oldest_protocol_version) return why = another_version(version), false;
  if (j.contains("rank") || j.contains("attempt")) {
    const auto rank = number_field(j, "rank"), attempt = number_field(j, "attempt");
    if (!rank || !attempt || *rank < 0 || *attempt < 0 || *rank > INT32_MAX || *attempt > INT32_MAX)
      return why = "the other end does not say which rank it is", false;
    rank_ = RankId{static_cast<int>(*rank), static_cast<int>(*attempt)};
    secret_ = rank_key(secret_, *rank_);
  }
  client_nonce_ = text_field(j, "nonce");
  if (!from_hex(client_nonce_, nonce)) return why = "the other end sent a malformed nonce", false;
  if (!proves(text_field(j, "proof"), proof("client")))
    return why = "the other end does not know this run's secret", false;
  answer = json{{"proof", proof("server")}}.dump();
  establish();
  return true;
}

Key Session::seal_of(bool by_client, std::uint64_t number, std::string_view text) const {
  return mac(session_, {by_client ? "c" : "s", std::to_string(number), " ", text});
}

std::string Session::seal_behind(std::string_view text) {
  return "\t" + to_hex(seal_of(end_ == End::client, sent_++, text));
}

std::optional<std::string_view> Session::open(std::string_view line) {
  constexpr std::size_t seal_size = 65;  // a tab and 64 hex digits
  if (line.size() < seal_size || line[line.size() - seal_size] != '\t') return std::nullopt;
  const std::string_view text = line.substr(0, line.size() - seal_size);
  Key given{};
  if (!from_hex(line.substr(line.size() - 64), given)) return std::nullopt;
  if (!same(given, seal_of(end_ == End::server, received_, text))) return std::nullopt;
  ++received_;
  return text;
}

}  // namespace holdfast::control
