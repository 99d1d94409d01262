// The messages of the protocol: the JSON of each, and that everything else is refused.
#include "src/control/message.hpp"
#include "src/base/as_size.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/control/message_samples.hpp"

namespace holdfast::control {
namespace {

using nlohmann::json;
using testing::HasSubstr;

bool publishes(const std::string& name) {
  return name == "pmix_fence" || name == "pmix_fenced" || name == "pmix_published";
}

/// With payloads of the right length behind it, where votes want them.
std::string line_of(const json& j) {
  std::string line = j.dump(-1, ' ', false, json::error_handler_t::replace);
  if (j["m"] == "vote" || publishes(j["m"])) return line + "\t";
  if (j["m"] != "node_votes") return line;
  std::size_t bytes = 0;
  if (j.contains("votes") && j["votes"].is_array())
    for (const auto& vote : j["votes"])
      if (vote.is_object()) bytes += vote.at("bytes").get<std::size_t>();
  return line + "\t" + std::string(bytes, 'x');
}
std::optional<Message> read(const json& j) {
  std::string why;
  auto message = decode(line_of(j), why);
  EXPECT_EQ(message.has_value(), why.empty());
  return message;
}

json json_in(const std::string& line) { return json::parse(line.substr(0, line.find('\t'))); }

std::string refusal(const std::string& text) {
  std::string why;
  return decode(text, why) ? "" : why;
}

TEST(Message, WireFormat) {
  std::vector<bool> seen(std::variant_size_v<Message>);
  for (const auto& [message, wire] : samples()) {
    seen[message.index()] = true;
    const std::string line = encode(message);
    EXPECT_EQ(json_in(line), json_in(wire));
    EXPECT_EQ(line.find('\n'), std::string::npos) << "a line is a message";
    const auto tab = line.find('\t');
    EXPECT_EQ(tab != std::string::npos, std::holds_alternative<NodeVotes>(message) ||
                                            std::holds_alternative<RankVote>(message) ||
                                            publishes(json_in(line)["m"]));
    if (tab != std::string::npos) {
      EXPECT_EQ(line.substr(tab), wire.substr(wire.find('\t')));
    }
    std::string why;
    const auto back = decode(wire, why);
    ASSERT_TRUE(back) << wire << ": " << why;
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), encode(message));
  }
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i]) << "no sample of alternative " << i;
}

TEST(Message, EveryPhaseRoleVerbAndFitness) {
  for (int phase = 0; phase <= static_cast<int>(Phase::paused); ++phase) {
    const auto back = read(json::parse(encode(RankProgress{1, 1, 1, static_cast<Phase>(phase)})));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::get<RankProgress>(*back).phase, static_cast<Phase>(phase));
  }
  for (int role = 0; role <= static_cast<int>(Hello::Role::caller); ++role) {
    const auto back = read(json::parse(encode(Hello{static_cast<Hello::Role>(role), "n"})));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::get<Hello>(*back).role, static_cast<Hello::Role>(role));
  }
  for (int verb = 0; verb <= static_cast<int>(Order::Verb::spares); ++verb) {
    const auto back = read(json::parse(encode(Order{"1", static_cast<Order::Verb>(verb), "", ""})));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::get<Order>(*back).verb, static_cast<Order::Verb>(verb));
  }
  for (int fitness = 0; fitness <= static_cast<int>(NodeHealth::Fitness::unknown); ++fitness) {
    const auto back =
        read(json::parse(encode(NodeHealth{static_cast<NodeHealth::Fitness>(fitness), "", ""})));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::get<NodeHealth>(*back).fitness, static_cast<NodeHealth::Fitness>(fitness));
  }
}

/// The type of a field: a whole number between bounds, a text up to a length, a list up to a length, a
/// name, a boolean; a measurement is any number, or null.
struct Field {
  enum class Kind { number, real, measurement, text, list, name, truth, object } kind;
  std::int64_t low = 0, high = 0;
};
const Field rank_field{Field::Kind::number, 0, 1 << 20}, count{Field::Kind::number, 0, INT32_MAX},
    step{Field::Kind::number, -1, std::int64_t{1} << 53}, pid{Field::Kind::number, 0, 1 << 22},
    status{Field::Kind::number, -1, 65535}, port{Field::Kind::number, 0, 65535}, truth{Field::Kind::truth},
    name{Field::Kind::name};
Field text(std::int64_t most) { return {Field::Kind::text, 0, most}; }
Field list(std::int64_t most) { return {Field::Kind::list, 0, most}; }
Field number(std::int64_t low, std::int64_t high) { return {Field::Kind::number, low, high}; }

const std::map<std::string, std::map<std::string, Field>>& fields() {
  static const std::map<std::string, std::map<std::string, Field>> all = {
      {"hello",
       {{"role", name},
        {"node", text(256)},
        {"term", count},
        {"attempt", count},
        {"rank", number(-1, 1 << 20)},
        {"pid", pid}}},
      {"rank_started", {{"rank", rank_field}, {"attempt", count}, {"pid", pid}}},
      {"progress",
       {{"rank", rank_field},
        {"attempt", count},
        {"step", step},
        {"phase", name},
        {"compute_us", number(0, std::int64_t{1} << 53)},
        {"moves", number(0, std::int64_t{1} << 53)}}},
      {"metrics",
       {{"rank", rank_field},
        {"attempt", count},
        {"step", step},
        {"loss", {Field::Kind::measurement}},
        {"tokens", number(0, INT64_MAX)}}},
      {"waits",
       {{"rank", rank_field},
        {"attempt", count},
        {"step", step},
        {"window_us", number(0, std::int64_t{1} << 53)},
        {"nodes", count},
        {"median_us", number(0, std::int64_t{1} << 53)},
        {"longest", list(16)}}},
      {"restored",
       {{"rank", rank_field},
        {"attempt", count},
        {"step", step},
        {"level", text(64)},
        {"digest", text(64)},
        {"note", text(12288)}}},
      {"vote",
       {{"rank", rank_field},
        {"attempt", count},
        {"step", step},
        {"ok", truth},
        {"stall_us", number(0, std::int64_t{1} << 53)}}},
      {"node_votes", {{"attempt", count}, {"step", step}, {"votes", list(4096)}}},
      {"finished", {{"rank", rank_field}, {"attempt", count}, {"state", {Field::Kind::object}}}},
      {"failed", {{"rank", rank_field}, {"attempt", count}, {"exit_code", status}, {"why", text(12288)}}},
      {"rank_exited", {{"rank", rank_field}, {"attempt", count}, {"status", status}}},
      {"flight",
       {{"rank", rank_field},
        {"attempt", count},
        {"silent_ms", number(0, std::int64_t{1} << 53)},
        {"groups", list(64)}}},
      {"seen",
       {{"rank", rank_field},
        {"attempt", count},
        {"still_ms", number(0, std::int64_t{1} << 53)},
        {"sign", text(64)},
        {"cpu_percent", number(0, std::int64_t{1} << 53)},
        {"state", text(64)}}},
      {"heard", {{"rank", rank_field}, {"attempt", count}, {"what", name}}},
      {"taken", {}},
      {"not_speaker", {{"why", text(12288)}}},
      {"doubt",
       {{"rank", rank_field},
        {"attempt", count},
        {"step", step},
        {"accused", list(4096)},
        {"check", text(64)},
        {"why", text(12288)}}},
      {"pause", {{"on", truth}}},
      {"inject",
       {{"fault", text(64)},
        {"rank", number(-1, 1 << 20)},
        {"seconds", {Field::Kind::real, 0, 86400}},
        {"seed", number(0, std::int64_t{1} << 53)}}},
      {"signs", {{"signs", list(256)}}},
      {"health", {{"fitness", name}, {"why", text(12288)}, {"numerics", text(64)}, {"findings", list(32)}}},
      {"check_node", {{"numerics", truth}}},
      {"dump_stacks", {{"attempt", count}, {"rank", rank_field}}},
      {"stacks", {{"attempt", count}, {"rank", rank_field}, {"text", text(3 * 65536)}}},
      {"order", {{"id", text(64)}, {"verb", name}, {"node", text(256)}, {"by", text(12288)}}},
      {"order_taken", {{"id", text(64)}, {"taken", truth}, {"says", text(3 << 20)}, {"again", truth}}},
      {"commit_outcome", {{"attempt", count}, {"step", step}, {"durable", truth}, {"why", text(12288)}}},
      {"beat", {{"node", text(256)}, {"attempt", count}, {"ranks", list(4096)}, {"copies_off", text(12288)}}},
      {"leader_beat", {{"term", count}}},
      {"clear", {{"term", count}, {"attempt", count}}},
      {"sealed", {{"rank", rank_field}, {"attempt", count}, {"step", step}}},
      {"cleared", {{"attempt", count}, {"free_port", port}, {"mover", port}, {"sealed", list(16384)}}},
      {"fetch_state", {{"attempt", count}, {"step", step}, {"of_attempt", count}, {"from", list(4096)}}},
      {"processes_left", {{"attempt", count}, {"why", text(12288)}}},
      {"state_fetched",
       {{"attempt", count},
        {"step", step},
        {"of_attempt", count},
        {"rank", number(-1, 1 << 20)},
        {"why", text(12288)},
        {"no_room", truth}}},
      {"start_ranks",
       {{"term", count},
        {"attempt", count},
        {"slot", number(0, (1 << 16) - 1)},
        {"ranks_per_node", number(1, 4096)},
        {"master_port", number(0, 65535)},
        {"master", text(256)},
        {"nodes", list(1 << 16)},
        {"trusted_step", step},
        {"durable_steps", list(64)},
        {"movers", list(1 << 16)},
        {"sealed_step", step},
        {"sealed_attempt", count},
        {"sealed_level", text(64)}}},
      {"pmix_rank", {{"rank", rank_field}, {"attempt", count}, {"environment", list(256)}}},
      {"pmix_fence",
       {{"attempt", count},
        {"set", text(64)},
        {"number", number(0, std::int64_t{1} << 53)},
        {"nodes", number(1, 1 << 16)},
        {"waits", truth}}},
      {"pmix_fenced",
       {{"attempt", count}, {"set", text(64)}, {"number", number(0, std::int64_t{1} << 53)}, {"ok", truth}}},
      {"pmix_question", {{"attempt", count}, {"rank", rank_field}, {"asker", number(-1, 1 << 16)}}},
      {"pmix_published",
       {{"attempt", count},
        {"rank", rank_field},
        {"asker", number(-1, 1 << 16)},
        {"status", number(INT32_MIN, INT32_MAX)}}},
      {"pmix_repeat", {}},
      {"finish", {{"exit_code", number(0, 255)}}},
      {"drain", {{"stop", truth}, {"reason", text(3 * 4096)}, {"until", number(0, std::int64_t{1} << 53)}}},
      {"answer", {{"grant", truth}, {"term", count}, {"leader_age_ms", number(-1, INT64_MAX)}}},
  };
  return all;
}

void expect_refused(json message, const std::string& field, const json& value) {
  message[field] = value;
  std::string why;
  EXPECT_FALSE(decode(line_of(message), why)) << message.dump().substr(0, 200);
  EXPECT_THAT(why, HasSubstr(field)) << message.dump().substr(0, 200);
}
void expect_taken(json message, const std::string& field, const json& value) {
  message[field] = value;
  EXPECT_TRUE(read(message)) << field << " in " << message.dump().substr(0, 200);
}

TEST(Message, IsRefusedByWhoIsNotSentIt) {
  std::string why;
  EXPECT_TRUE(decode<AgentToRank>(encode(Pause{true}), why)) << why;
  EXPECT_FALSE(decode<AgentToRank>(encode(Finish{0}), why));
  EXPECT_EQ(why, "no message here is called 'finish'");
  EXPECT_TRUE(decode<Hello>(encode(Hello{}), why));
  EXPECT_FALSE(decode<Hello>(encode(Order{"1", Order::Verb::stop, "", ""}), why));
  EXPECT_EQ(why, "no message here is called 'order'");
}

TEST(Message, EveryFieldHasItsBounds) {
  for (const auto& [message, wire] : samples()) {
    const json good = json_in(wire);
    const auto& known = fields().at(good["m"]);
    ASSERT_EQ(good.size(), known.size() + 1) << wire << ": a field without bounds";
    for (const auto& [field, f] : known) {
      json without = good;
      without.erase(field);
      EXPECT_EQ(refusal(line_of(without)), field + " is missing");
      if (f.kind == Field::Kind::measurement) {
        for (const json& value : {json(nullptr), json(-1.5), json(1e300)}) expect_taken(good, field, value);
        for (const json& value : {json(true), json("1"), json::array({1}), json{{"a", 1}}})
          expect_refused(good, field, value);
        continue;
      }
      if (f.kind != Field::Kind::object) expect_refused(good, field, nullptr);
      if (f.kind != Field::Kind::object) expect_refused(good, field, {{"a", 1}});
      if (f.kind != Field::Kind::list) expect_refused(good, field, json::array({1}));
      if (f.kind != Field::Kind::truth) expect_refused(good, field, true);
      if (f.kind != Field::Kind::text) expect_refused(good, field, "nonsense");
      if (f.kind != Field::Kind::real) expect_refused(good, field, 1.5);
      expect_refused(good, field, 1e300);
      switch (f.kind) {
        case Field::Kind::number:
          expect_taken(good, field, f.low);
          expect_taken(good, field, f.high);
          expect_refused(good, field, f.low - 1);
          if (f.high < INT64_MAX) expect_refused(good, field, f.high + 1);
          expect_refused(good, field, std::numeric_limits<std::int64_t>::min());
          expect_refused(good, field, std::numeric_limits<std::uint64_t>::max());
          break;
        case Field::Kind::real:
          expect_taken(good, field, 1.5);
          expect_taken(good, field, f.low);
          expect_taken(good, field, f.high);
          expect_refused(good, field, -1e-9);
          expect_refused(good, field, static_cast<double>(f.high) + 0.5);
          break;
        case Field::Kind::text:
          expect_taken(good, field, "");
          expect_taken(good, field, std::string(f.high, 'x'));
          expect_refused(good, field, std::string(as_size(f.high) + 1, 'x'));
          expect_refused(good, field, 1);
          break;
        case Field::Kind::list: {
          const json one = good[field][0];
          json many = json::array();
          for (std::int64_t i = 0; i < f.high; ++i) many.push_back(one);
          expect_taken(good, field, many);
          many.push_back(one);
          expect_refused(good, field, many);
          expect_refused(good, field, json::array({one, nullptr}));
          break;
        }
        case Field::Kind::name:
          expect_refused(good, field, "");
          expect_refused(good, field, std::string(5000, 'x'));
          break;
        case Field::Kind::truth:
          expect_refused(good, field, 1);
          break;
        case Field::Kind::measurement:
        case Field::Kind::object:
          break;
      }
    }
  }
}

TEST(Message, NestedFieldsHaveTheirBounds) {
  const auto refused = [](const Message& message, const std::string& path, const json& value) {
    json j = json::parse(encode(message));
    j[json::json_pointer(path)] = value;
    std::string why;
    EXPECT_FALSE(decode(j.dump(), why)) << j.dump();
  };
  const Message finished = RankFinished{0, 2, FinalState{9, 1000, 2.5, "ab"}};
  refused(finished, "/state/step", -2);
  refused(finished, "/state/tokens", -1);
  refused(finished, "/state/loss", "2.5");
  refused(finished, "/state/digest", std::string(65, '0'));
  const Message beat = Heartbeat{"n", 2, {{4, 2, 17, Phase::forward}}};
  refused(beat, "/ranks/0/rank", -1);
  refused(beat, "/ranks/0/step", -2);
  refused(beat, "/ranks/0/phase", "resting");
  refused(beat, "/ranks/0/attempt", 1e10);
  const Message waits = RankWaits{5, 2, {40, 1, 1, 1, {{8, 1}}}};
  refused(waits, "/longest/0/rank", -1);
  refused(waits, "/longest/0/us", -1);
  const Message start = StartRanks{3, 2, 0, 8, 29501, "m", {"n"}};
  refused(start, "/nodes/0", std::string(257, 'x'));
  refused(start, "/nodes/0", nullptr);
  const Message flight = RankFlight{3, 2, 0, {group_of(7, "the world", flight::Collective::barrier)}};
  for (const json& key : {json(0), json(-1), json(1e10), json("7"), json(nullptr)})
    refused(flight, "/groups/0/key", key);
  refused(flight, "/groups/0/name", std::string(32, 'x'));
  refused(flight, "/groups/0/name", std::string("a\0b", 3));
  refused(flight, "/groups/0/name", "\xc3\xa9");
  refused(flight, "/groups/0/operation", "rest");
  refused(flight, "/groups/0/queued", 811);  // fewer than were entered
  refused(flight, "/groups/0/queued", (std::int64_t{1} << 53) + 1);
  refused(flight, "/groups/0/started", 815);
  refused(flight, "/groups/0/finished", 813);
  refused(flight, "/groups/0/finished", -1);
  refused(flight, "/groups/0/size", 0);
  refused(flight, "/groups/0/member", 4);
  refused(flight, "/groups/0/member", -1);
  const Message doubt = RankDoubt{0, 2, 4, {1}, "micro_batch", ""};
  for (const json& rank : {json(-1), json((1 << 20) + 1), json(1.0), json("1"), json(UINT64_MAX)})
    refused(doubt, "/accused/0", rank);
  const Message signs = NodeSigns{{{"xid", 3, 79, 1200, "text"}}};
  refused(signs, "/signs/0/rank", -2);
  refused(signs, "/signs/0/code", (std::int64_t{1} << 53) + 1);
  refused(signs, "/signs/0/age_ms", -1);
  refused(signs, "/signs/0/kind", std::string(193, 'x'));
  refused(signs, "/signs/0/text", nullptr);
  NodeVotes votes{2, 400, {}, {}};
  votes.add(8, true, "");
  const auto refused_vote = [&](const std::string& path, const json& value) {
    json j = json_in(encode(votes));
    j[json::json_pointer(path)] = value;
    std::string why;
    EXPECT_FALSE(decode(j.dump() + "\t", why)) << j.dump();
  };
  refused_vote("/votes", json::array());
  refused_vote("/votes/0/rank", -1);
  refused_vote("/votes/0/ok", 1);
  refused_vote("/votes/0/bytes", -1);
  refused_vote("/votes/0/stall_us", -1);
  for (const json& what : {json(-1), json(1.5), json("10")})
    refused(StartRanks{3, 2, 0, 8, 29501, "m", {"n"}, {}, {-1, {10}}}, "/durable_steps/0", what);
}

TEST(Message, PayloadsOfVotesTravelAsTheyAre) {
  NodeVotes sent{2, 400, {}, {}};
  const std::vector<std::string> payloads = {R"({"a":"b\n"})", "", "cannot write\tit\nhere", "{}"};
  for (std::size_t i = 0; i < payloads.size(); ++i) sent.add(static_cast<int>(i), i != 2, payloads[i]);
  const std::string line = encode(sent);
  EXPECT_THAT(line, HasSubstr("\t" + payloads[0])) << "nothing is escaped";
  EXPECT_EQ(line.find('\n'), std::string::npos);
  std::string why;
  const auto back = decode<AgentToLeader>(line, why);
  ASSERT_TRUE(back) << why;
  const auto& heard = std::get<NodeVotes>(*back);
  EXPECT_EQ(heard.step, 400);
  EXPECT_THAT(heard.each_payload(), testing::ElementsAre(payloads[0], "", "cannot write\tit here", "{}"));
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(heard.votes[i].rank, static_cast<int>(i));
    EXPECT_EQ(heard.votes[i].ok, i != 2);
  }
  EXPECT_EQ(refusal(line + "x"), "the payloads are not as long as their votes say");
  EXPECT_EQ(refusal(line.substr(0, line.size() - 1)), "the payloads are not as long as their votes say");
  EXPECT_EQ(refusal(line.substr(0, line.find('\t'))), "the payloads are not as long as their votes say");
  EXPECT_EQ(refusal(encode(Taken{}) + "\t{}"), "something follows the JSON object");

  const std::string longest(NodeVotes::max_bytes, '"');
  const std::string vote = encode(RankVote{1, 2, 400, true, longest});
  EXPECT_LT(vote.size(), 8u << 20) << "a line";
  const auto rank = decode<RankToAgent>(vote, why);
  ASSERT_TRUE(rank) << why;
  EXPECT_EQ(std::get<RankVote>(*rank).payload, longest);
  EXPECT_EQ(refusal(vote + "x"), "the payload is too long");
  EXPECT_EQ(refusal(vote.substr(0, vote.find('\t'))), "the payload is missing");
}

TEST(Message, TheLongestVotesFitIntoALine) {
  NodeVotes votes{INT32_MAX, std::int64_t{1} << 53, {}, {}};
  const std::string payload(NodeVotes::max_bytes / 4096, 'x');
  for (int i = 0; i < 4096; ++i) {
    ASSERT_TRUE(votes.has_room_for(payload));
    votes.add((1 << 20) - i, false, payload);
  }
  EXPECT_FALSE(votes.has_room_for("x"));
  const std::string line = encode(votes);
  EXPECT_LT(line.size(), (8u << 20) - 65);
  std::string why;
  EXPECT_TRUE(decode(line, why)) << why;
}

TEST(Message, AFlightArrivesAsItWas) {
  for (int operation = 0; operation <= static_cast<int>(flight::Collective::barrier); ++operation) {
    const auto sent = group_of(0x8000000000000001, "a name of 31 bytes, as they get",
                               static_cast<flight::Collective>(operation));
    const auto back = read(json::parse(encode(RankFlight{1, 2, 3, {sent, sent}})));
    ASSERT_TRUE(back);
    const auto& groups = std::get<RankFlight>(*back).groups;
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(std::memcmp(&groups[1], &sent, sizeof sent), 0) << operation;
  }
}

TEST(Message, MalformedLines) {
  for (const char* line : {"", " ", "null", "[]", "7", "\"hello\"", "{", "{}}", "{\"m\":\"taken\"",
                           "{\"m\":\"taken\"} x", "\xff\xfe", "{\"m\":\"taken\",}", "{'m':'taken'}"})
    EXPECT_EQ(refusal(line), "it is not a JSON object") << line;
  EXPECT_EQ(refusal("{}"), "m is missing");
  EXPECT_THAT(refusal(R"({"m":7})"), HasSubstr("m is not a text"));
  EXPECT_EQ(refusal(R"({"m":"sudo"})"), "no message here is called 'sudo'");
  EXPECT_THAT(refusal(R"({"m":"failed","rank":1,"attempt":1,"exit_code":1,"why":")"
                      "\xc3\x28"
                      R"("})"),
              HasSubstr("JSON"));
  EXPECT_FALSE(refusal(std::string(1 << 20, '[')).empty());
  EXPECT_FALSE(refusal(R"({"m":)" + std::string(1 << 20, '[')).empty());
  std::string deep = R"({"m":"taken","x":)" + std::string(200000, '[') + std::string(200000, ']') + "}";
  EXPECT_FALSE(refusal(deep).empty()) << "what is nested without end would overflow the stack";
  EXPECT_EQ(refusal(R"({"m":"taken","x":[[{"y":1}]]})"), "") << "more than is needed is not wrong";
}

/// A rank's final message must be sent whatever it contains: the rank waits until it is received.
TEST(Message, LastWordsAreCutAndNotRefused) {
  for (const std::string& why :
       {std::string(100000, 'x'), std::string(4095, 'x') + "\xc3\xa9", std::string(5000, '\xff'),
        std::string("a\0b", 3), std::string("\n\t\"\\")}) {
    for (const Message& said :
         {Message(RankFailed{1, 2, 1, why}), Message(CommitOutcome{2, 3, false, why}),
          Message(RankRestored{1, 2, {3, "shared", "00", why}}), Message(Drain{true, why}),
          Message(RankDoubt{0, 2, 3, {1}, "micro_batch", why}), Message(NodeSigns{{{why, 1, 2, 3, why}}}),
          Message(NodeHealth{NodeHealth::Fitness::warning, why, ""}), Message(Stacks{2, 1, why + why}),
          Message(Order{"1", Order::Verb::save, "", why}), Message(OrderTaken{"1", true, why + why})}) {
      std::string refused;
      EXPECT_TRUE(decode(encode(said), refused)) << refused << ", " << why.size() << " bytes";
    }
  }
}

/// Any line can arrive before its seal is checked, and a bug could seal malformed text.
TEST(Message, MutatedLinesNeverCrash) {
  std::mt19937_64 random(1);
  const auto below = [&](std::size_t n) { return as_size(random() % n); };
  std::vector<std::string> seeds;
  for (const auto& [message, wire] : samples()) seeds.push_back(encode(message));
  const std::vector<std::string> pieces = {"-1",
                                           "0",
                                           "9223372036854775808",
                                           "-9223372036854775809",
                                           "1e400",
                                           "null",
                                           "true",
                                           "[]",
                                           "{}",
                                           "\"\"",
                                           "\\u0000",
                                           "\\ud800",
                                           "\"m\":",
                                           "\"step\":",
                                           "\xff",
                                           ",",
                                           "}",
                                           "]"};
  int accepted = 0;
  const auto begin = std::chrono::steady_clock::now();
  constexpr int lines = 200000;
  for (int i = 0; i < lines; ++i) {
    std::string line = seeds[below(seeds.size())];
    for (std::size_t change = 0, changes = 1 + below(3); change < changes && !line.empty(); ++change) {
      const std::size_t at = below(line.size());
      switch (below(6)) {
        case 0:
          line[at] = static_cast<char>(random());
          break;
        case 1:
          line.erase(at, 1 + below(4));
          break;
        case 2:
          line.insert(at, pieces[below(pieces.size())]);
          break;
        case 3:
          line.resize(at);
          break;
        case 4:
          line[at] = static_cast<char>('0' + below(10));
          break;
        case 5: {  // the head of one message and the tail of another
          const std::string& other = seeds[below(seeds.size())];
          line = line.substr(0, at) + other.substr(below(other.size()));
        }
      }
    }
    std::string why;
    const auto message = decode(line, why);
    ASSERT_EQ(message.has_value(), why.empty()) << line;
    if (!message) continue;
    ++accepted;
    // An accepted text is a valid message.
    const std::string again = encode(*message);
    const auto back = decode(again, why);
    ASSERT_TRUE(back) << line << "\n" << again << "\n" << why;
    ASSERT_EQ(encode(*back), again);
  }
  EXPECT_GT(accepted, lines / 100);
  EXPECT_LT(accepted, lines * 9 / 10);
  RecordProperty("accepted", accepted);
  RecordProperty(
      "ms", static_cast<int>(
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count()));
}

}  // namespace
}  // namespace holdfast::control
