#include "launcher/agent/mover/requests.hpp"

#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/strict_json.hpp"
#include "src/control/fields.hpp"

namespace holdfast::launcher {

using control::FieldReader;
using nlohmann::json;

namespace {

constexpr control::Range rank_bounds{0, hfc_most_ranks}, step_bounds{-1, HFC_MOST_STEP},
    attempt_bounds{0, INT32_MAX};
constexpr control::Words reason{4096};
constexpr control::List<control::Text> some_buffers{0, hfc_most_buffers, {hfc_name_bytes}};

Error unreadable(const std::string& why) {
  return {Exit::transient, "what another mover says cannot be read", why};
}

/// `read` gets the fields of a JSON object.
template <class Read>
auto read_object(std::string_view text, Read read) {
  const json said = json_from(text);
  if (!said.is_object()) throw unreadable("it is not a JSON object");
  try {
    FieldReader field(said);
    return read(field, said);
  } catch (const control::Refused& refused) {
    throw unreadable(refused.what());
  }
}

Seal seal_in(FieldReader& field) {
  std::string text;
  field("seal", text, control::Text{hfc_seal_bytes});
  const auto seal = snapshot::seal_of(text);
  if (!seal) throw unreadable("its seal is not valid");
  return *seal;
}

std::string on_one_line(const json& said) {
  return said.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

control::Key mover_key(const control::Key& secret) { return control::mac(secret, "mover"); }

std::string to_text(const MoverRequest& request) {
  if (const auto* put = std::get_if<PutRequest>(&request))
    return on_one_line({{"m", "put"},
                        {"rank", put->rank},
                        {"seal", to_text(put->seal)},
                        {"base_step", put->base_step},
                        {"base_attempt", put->base_attempt}});
  const auto& get = std::get<GetRequest>(request);
  return on_one_line(
      {{"m", "get"}, {"rank", get.rank}, {"step", get.step}, {"attempt", get.attempt}, {"have", get.have}});
}

std::string to_text(const MoverConsent& consent) {
  json said{{"ok", true}};
  if (consent.here) said["here"] = true;
  if (consent.seal) said["seal"] = to_text(*consent.seal);
  return on_one_line(said);
}

std::string refusal_text(const std::string& why) {
  return on_one_line({{"ok", false}, {"why", why.substr(0, reason.max_bytes)}});
}

MoverRequest request_of(std::string_view text) {
  return read_object(text, [](FieldReader& field, const json&) -> MoverRequest {
    std::string what;
    field("m", what, control::Text{64});
    if (what == "put") {
      PutRequest put;
      field("rank", put.rank, rank_bounds);
      field("base_step", put.base_step, step_bounds);
      field("base_attempt", put.base_attempt, attempt_bounds);
      put.seal = seal_in(field);
      return put;
    }
    if (what != "get") throw unreadable("no request is called '" + what + "'");
    GetRequest get;
    field("rank", get.rank, rank_bounds);
    field("step", get.step, step_bounds);
    field("attempt", get.attempt, attempt_bounds);
    field("have", get.have, some_buffers);
    return get;
  });
}

MoverConsent consent_of(std::string_view text) {
  return read_object(text, [](FieldReader& field, const json& said) {
    bool ok = false;
    field("ok", ok, control::Flag{});
    if (!ok) {
      std::string why;
      field("why", why, reason);
      throw Error(Exit::transient, "another mover refuses", why);
    }
    MoverConsent consent;
    if (said.contains("here")) field("here", consent.here, control::Flag{});
    if (said.contains("seal")) consent.seal = seal_in(field);
    return consent;
  });
}

}  // namespace holdfast::launcher
