#include "launcher/agent/mover/requests.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/base/error.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const Seal sent_seal{12, 3, 4, {{"model", 1000, 0xab}}};

std::string complaint(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::transient);
    return error.what();
  }
  return "";
}

TEST(MoverRequests, AreTextThatComesBack) {
  const MoverRequest put = PutRequest{7, sent_seal, 10, 2}, get = GetRequest{7, 12, 3};
  EXPECT_EQ(
      json::parse(to_text(put)),
      (json{
          {"m", "put"}, {"rank", 7}, {"seal", to_text(sent_seal)}, {"base_step", 10}, {"base_attempt", 2}}));
  EXPECT_EQ(json::parse(to_text(get)),
            (json{{"m", "get"}, {"rank", 7}, {"step", 12}, {"attempt", 3}, {"have", json::array()}}));
  EXPECT_EQ(request_of(to_text(put)), put);
  EXPECT_EQ(request_of(to_text(get)), get);
  const MoverRequest rest = GetRequest{7, 12, 3, {"model", "optim.0"}};
  EXPECT_EQ(json::parse(to_text(rest)).at("have"), json({"model", "optim.0"}));
  EXPECT_EQ(request_of(to_text(rest)), rest);
}

TEST(MoverRequests, AnswersAreTextThatComesBack) {
  EXPECT_EQ(to_text(MoverConsent{}), R"({"ok":true})");
  for (const auto& consent : {MoverConsent{}, MoverConsent{true, {}}, MoverConsent{false, sent_seal}})
    EXPECT_EQ(consent_of(to_text(consent)), consent);
  EXPECT_THAT(complaint([] { consent_of(refusal_text("it is not here")); }), HasSubstr("it is not here"));
  EXPECT_THAT(complaint([] { consent_of(refusal_text("\xff")); }), HasSubstr("another mover refuses"));
}

TEST(MoverRequests, EveryFieldHasItsBounds) {
  struct Row {
    const char *message, *field;
    json value;
  };
  const Row rows[] = {
      {"put", "rank", -1},           {"put", "rank", 1 << 21},       {"put", "rank", "7"},
      {"put", "rank", 1.5},          {"put", "rank", nullptr},       {"put", "base_step", -2},
      {"put", "base_attempt", -1},   {"put", "base_attempt", 1e300}, {"put", "seal", 5},
      {"put", "seal", "not a seal"}, {"put", "m", "push"},           {"get", "rank", UINT64_MAX},
      {"get", "step", true},         {"get", "step", INT64_MAX},     {"get", "attempt", json::array()},
      {"get", "m", nullptr},         {"get", "have", "model"},       {"get", "have", json(300, "x")},
  };
  for (const auto& row : rows) {
    json said = row.message == std::string("put") ? json::parse(to_text(PutRequest{7, sent_seal, 10, 2}))
                                                  : json::parse(to_text(GetRequest{7, 12, 3}));
    said[row.field] = row.value;
    EXPECT_NE(complaint([&] { request_of(said.dump()); }), "") << said;
    said.erase(row.field);
    EXPECT_NE(complaint([&] { request_of(said.dump()); }), "") << said;
  }
  for (const char* text : {"", "[]", "{", R"({"ok":1})", R"({"here":true})", R"({"ok":false})",
                           R"({"ok":true,"here":0})", R"({"ok":true,"seal":"none"})"})
    EXPECT_NE(complaint([&] { consent_of(text); }), "") << text;
}

}  // namespace
}  // namespace holdfast::launcher
