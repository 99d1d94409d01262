#include "launcher/record/events.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/base/error.hpp"
#include "tests/launcher/record/log_entry.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// A value of every type of field that is not its default.
void fill(std::string& value) { value = "some"; }
void fill(bool& value) { value = !value; }
void fill(double& value) { value = 1.5; }
void fill(int& value) { value = 7; }
void fill(std::int64_t& value) { value = std::int64_t{1} << 40; }
template <class Object>
requires requires { Object::fields; }
void fill(Object& object);
template <class Value>
void fill(std::optional<Value>& value) {
  fill(value.emplace());
}
template <class Value>
void fill(std::vector<Value>& value) {
  fill(value.emplace_back());
  fill(value.emplace_back());
}
template <class Value>
void fill(std::map<std::string, Value>& value) {
  fill(value["a name"]);
}
template <class Object>
requires requires { Object::fields; }
void fill(Object& object) {
  std::apply([&](const auto&... field) { (fill(object.*field.member), ...); }, Object::fields);
}

/// Calls `visit` with every known event, all its fields filled.
template <std::size_t i = 0>
void each_event(const std::function<void(const Event&)>& visit) {
  using Candidate = std::variant_alternative_t<i, Event>;
  if constexpr (!std::is_same_v<Candidate, UnknownEvent>) {
    Candidate event;
    fill(event);
    visit(event);
    each_event<i + 1>(visit);
  }
}

std::string refusal(const json& event) {
  try {
    event_from_json(event);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

/// The fields of an event without which it is malformed.
std::set<std::string> required_of(const Event& event) {
  std::set<std::string> names;
  std::visit(
      [&]<class Known>(const Known&) {
        if constexpr (!std::is_same_v<Known, UnknownEvent>)
          std::apply(
              [&](const auto&... field) {
                ((field.presence == Presence::required ? (void)names.insert(field.name) : void()), ...);
              },
              Known::fields);
      },
      event);
  return names;
}

TEST(Events, EachIsReadAsItWasWritten) {
  std::set<std::string> kinds;
  each_event([&](const Event& event) {
    const json written = to_json(event);
    EXPECT_TRUE(kinds.insert(kind_of(event)).second) << kind_of(event) << " is the name of two";
    EXPECT_EQ(written["event"], kind_of(event));
    const Event read = event_from_json(json::parse(written.dump()));
    EXPECT_EQ(read.index(), event.index());
    EXPECT_EQ(to_json(read), written);
    const Event plain = test::plain_event(kind_of(event));
    EXPECT_EQ(to_json(event_from_json(to_json(plain))), to_json(plain)) << "all fields have their defaults";
  });
  EXPECT_EQ(kinds.size(), std::variant_size_v<Event> - 1);
}

TEST(Events, WhatIsMalformedIsRefusedByName) {
  each_event([&](const Event& event) {
    const json whole = to_json(event);
    const auto required = required_of(event);
    EXPECT_FALSE(required.empty()) << kind_of(event);
    for (const auto& [name, value] : whole.items()) {
      if (name == "event") continue;
      json missing = whole;
      missing.erase(name);
      const std::string says = refusal(missing);
      if (required.contains(name))
        EXPECT_THAT(says, HasSubstr(kind_of(event) + ": " + name + " is missing"));
      else
        EXPECT_EQ(says, "accepted") << kind_of(event) << " without " << name;
      json wrong = whole;
      wrong[name] = value.is_object() ? json(3) : json{{"an", "object"}};
      EXPECT_THAT(refusal(wrong), HasSubstr(kind_of(event) + ": " + name + " is ")) << value;
    }
  });
  EXPECT_THAT(refusal({{"event", "attempt_started"}, {"attempt", 1.5}}), HasSubstr("is 1.5, not an integer"));
  EXPECT_THAT(refusal({{"event", "attempt_started"}, {"attempt", std::int64_t{1} << 40}}),
              HasSubstr("not an integer of 32 bits"));
  EXPECT_THAT(refusal({{"event", "attempt_started"}, {"attempt", nullptr}}),
              HasSubstr("null, not an integer"));
  EXPECT_THAT(refusal(json::array()), HasSubstr("[] is not an object"));
}

TEST(Events, PartsAreReadAsStrictly) {
  json pace = {{"event", "pace"}, {"attempt", 1}, {"phases", {{"forward", {{"longest_s", 1.0}}}}}};
  EXPECT_THAT(refusal(pace), HasSubstr("pace.forward: first_s is missing"));
  pace["phases"]["forward"]["first_s"] = "long";
  EXPECT_THAT(refusal(pace), HasSubstr(R"(pace.forward: first_s is "long", not a number)"));
  json accused = to_json(Event(events::SilentCorruption{}));
  accused["accused"] = {1, "two"};
  EXPECT_THAT(refusal(accused), HasSubstr(R"(accused is "two", not an integer)"));
}

TEST(Events, AnUnknownOneIsKept) {
  const json later = {{"event", "of a later version"},
                      {"field", {1, 2}},
                      {"term", 3},
                      {"seq", 4},
                      {"unix", 5.5},
                      {"schema_version", 1}};
  const LogEntry entry = entry_from_json(later);
  ASSERT_TRUE(std::holds_alternative<UnknownEvent>(entry.event));
  EXPECT_EQ(kind_of(entry.event), "of a later version");
  EXPECT_EQ(entry.envelope.term, 3);
  EXPECT_EQ(entry.envelope.seq, 4);
  json again = to_json(entry);
  again.erase("time");
  EXPECT_EQ(again, later);
  EXPECT_EQ(kind_of(event_from_json({{"no", "name"}})), "");
  EXPECT_EQ(kind_of(event_from_json({{"event", 7}})), "");
}

TEST(Events, FieldsThatAreNotKnownAreIgnored) {
  const Event event = event_from_json({{"event", "attempt_started"}, {"attempt", 2}, {"of a later", "one"}});
  EXPECT_EQ(std::get<events::AttemptStarted>(event).attempt, 2);
}

TEST(Events, TheEnvelopeIsRequired) {
  const json whole = to_json(LogEntry{{1, 2, 3, 4.5, ""}, events::AttemptStarted{1}});
  EXPECT_EQ(whole["term"], 2);
  EXPECT_EQ(whole["seq"], 3);
  for (const char* name : {"schema_version", "term", "seq", "unix"}) {
    json missing = whole;
    missing.erase(name);
    EXPECT_THROW(entry_from_json(missing), Error) << name;
  }
  EXPECT_EQ(to_json(entry_from_json(whole)), whole);
}

TEST(Events, ALineOfTheFirstVersionIsRead) {
  const LogEntry entry = entry_from_json(json::parse(
      R"({"attempt":1,"cause":"node lost","detected_s":2.0,"event":"attempt_ended","evidence":"no heartbeat",)"
      R"("healthy":false,"node":"n1","rank":-1,"schema_version":1,"seq":9,"step":41,"term":1,)"
      R"("time":"2026-11-21T03:04:05.678901Z","unix":1795230245.678901})"));
  const auto& ended = std::get<events::AttemptEnded>(entry.event);
  EXPECT_THAT(ended.evidence, ElementsAre("no heartbeat"));
  EXPECT_EQ(ended.step, 41);
  EXPECT_EQ(ended.kind, "planned") << "it did not say so yet, and nothing is counted";
  EXPECT_FALSE(ended.blamed);
  const LogEntry elected = entry_from_json(
      json::parse(R"({"event":"leader_elected","job":"7.0","node":"n0","pid":1,"schema_version":1,"seq":1,)"
                  R"("term":1,"unix":1.0})"));
  EXPECT_FALSE(std::get<events::LeaderElected>(elected.event).after);
  const Event planned = event_from_json(
      {{"event", "attempt_planned"}, {"attempt", 1}, {"placement", {"n0", "n1"}}, {"term", 1}});
  EXPECT_THAT(std::get<events::AttemptPlanned>(planned).placement, ElementsAre("n0", "n1"));
}

TEST(Events, ANumberThatIsNotFiniteIsNull) {
  const json written = to_json(Event(events::FinalState{5, 50, std::nan(""), "ab"}));
  EXPECT_TRUE(written["loss"].is_null());
  EXPECT_TRUE(std::isnan(std::get<events::FinalState>(event_from_json(written)).loss));
}

TEST(Events, ALineHasNoBytesThatAreNotText) {
  EXPECT_EQ(line_of(events::NodeReturned{"n1", "a\nb\xff"}),
            "{\"event\":\"node_returned\",\"evidence\":\"a\\nb\xef\xbf\xbd\",\"node\":\"n1\"}");
}

}  // namespace
}  // namespace holdfast::launcher
