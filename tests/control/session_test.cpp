// Two ends of a connection, line by line: which ends are accepted, and which changes are detected.
#include "src/control/session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "src/base/error.hpp"

namespace holdfast::control {
namespace {

using testing::HasSubstr;

struct Pair {
  explicit Pair(const Key& server_secret = key(1), const Key& client_secret = key(1))
      : server(Session::End::server, server_secret), client(Session::End::client, client_secret) {}
  static Key key(unsigned char value) {
    Key k;
    k.fill(value);
    return k;
  }
  /// The whole handshake; false and `why` at the first refusal.
  bool shake() {
    std::optional<std::string> line = server.opening(), answer;
    if (!client.handshake(*line, answer, why)) return false;
    line = answer;
    if (!server.handshake(*line, answer, why)) return false;
    line = answer;
    return client.handshake(*line, answer, why) && !answer;
  }
  Session server, client;
  std::string why;
};

TEST(Session, HandshakeAndWordsBothWays) {
  Pair p;
  EXPECT_FALSE(p.client.opening()) << "the server speaks first";
  EXPECT_FALSE(p.server.established());
  ASSERT_TRUE(p.shake()) << p.why;
  EXPECT_TRUE(p.server.established());
  EXPECT_TRUE(p.client.established());
  for (int i = 0; i < 3; ++i) {
    const std::string to = "{\"n\":" + std::to_string(i) + "}";
    EXPECT_EQ(p.server.open(p.client.seal(to)), to);
    EXPECT_EQ(p.client.open(p.server.seal(to)), to);
  }
  EXPECT_EQ(p.server.open(p.client.seal("")), "");
}

TEST(Session, HandshakeLinesFitTheirLimit) {
  Pair p;
  std::optional<std::string> answer;
  const auto opening = p.server.opening();
  EXPECT_LT(opening->size(), handshake_line_limit);
  ASSERT_TRUE(p.client.handshake(*opening, answer, p.why));
  EXPECT_LT(answer->size(), handshake_line_limit);
}

TEST(Session, WrongSecretEitherWay) {
  Pair client_wrong(Pair::key(1), Pair::key(2));
  EXPECT_FALSE(client_wrong.shake());
  EXPECT_EQ(client_wrong.why, "the other end does not know this run's secret");
  EXPECT_FALSE(client_wrong.server.established());

  // A server that does not know the secret and tries other proofs.
  Session client(Session::End::client, Pair::key(1)), server(Session::End::server, Pair::key(2));
  std::optional<std::string> answer;
  std::string why;
  ASSERT_TRUE(client.handshake(*server.opening(), answer, why));
  const std::string proof = to_hex(mac(Pair::key(2), "server"));
  for (const std::string& line :
       {"{\"proof\":\"" + proof + "\"}", std::string("{}"), std::string("{\"proof\":null}"), *answer}) {
    EXPECT_FALSE(client.handshake(line, answer, why)) << line;
    EXPECT_EQ(why, "the agent does not know this run's secret");
    EXPECT_FALSE(client.established());
  }
}

TEST(Session, OneHandshakeDoesNotServeAnother) {
  Pair first, second;
  std::optional<std::string> answer;
  ASSERT_TRUE(first.client.handshake(*first.server.opening(), answer, first.why));
  const std::string proof = *answer;
  EXPECT_FALSE(second.server.handshake(proof, answer, second.why)) << "a proof answers one challenge";
  Pair a, b;
  ASSERT_TRUE(a.shake());
  ASSERT_TRUE(b.shake());
  EXPECT_FALSE(b.server.open(a.client.seal("x"))) << "a seal belongs to one connection";
}

TEST(Session, OtherVersionsAndNonsense) {
  const std::string nonce(64, 'a');
  std::optional<std::string> answer;
  for (const std::string& line :
       {std::string(R"({"nonce":")") + nonce + "\"}",
        std::string(R"({"holdfast":"1","nonce":")") + nonce + "\"}", std::string("{}")}) {
    Session client(Session::End::client, Pair::key(1));
    std::string why;
    EXPECT_FALSE(client.handshake(line, answer, why)) << line;
    EXPECT_EQ(why, "the other end does not speak this protocol");
  }
  for (const std::string& line :
       {std::string(R"({"holdfast":2})"), std::string(R"({"holdfast":2,"nonce":7})"),
        std::string(R"({"holdfast":2,"nonce":"zz"})"), R"({"holdfast":2,"nonce":")" + nonce + "a\"}"}) {
    Session client(Session::End::client, Pair::key(1));
    std::string why;
    EXPECT_FALSE(client.handshake(line, answer, why)) << line;
    EXPECT_EQ(why, "the other end sent a malformed challenge");
  }
  for (const std::string& line : {std::string(), std::string("SSH-2.0-OpenSSH_9.2"), std::string("[1]"),
                                  std::string("\"x\""), std::string(400, '['), std::string("\0\xff", 2)}) {
    Session client(Session::End::client, Pair::key(1)), server(Session::End::server, Pair::key(1));
    std::string why;
    EXPECT_FALSE(client.handshake(line, answer, why));
    EXPECT_EQ(why, "the other end does not speak this protocol");
    EXPECT_FALSE(server.handshake(line, answer, why));
    EXPECT_FALSE(server.established() || client.established());
  }
  Session server(Session::End::server, Pair::key(1));
  std::string why;
  EXPECT_FALSE(server.handshake(R"({"holdfast":2,"proof":"x"})", answer, why));
  EXPECT_EQ(why, "the other end sent a malformed nonce");
}

TEST(Session, SpeaksToNewerEndsThatSpeakToIt) {
  const std::string nonce(64, 'a');
  const auto taken = [&](Session::End end, const std::string& versions) {
    Session here(end, Pair::key(1));
    std::optional<std::string> answer;
    std::string why;
    here.handshake("{" + versions + R"("nonce":")" + nonce + "\"}", answer, why);
    return why;
  };
  using enum Session::End;
  const std::string other = "the other end speaks version ";
  EXPECT_EQ(taken(client, R"("holdfast":2,"oldest":2,)"), "");
  EXPECT_EQ(taken(client, R"("holdfast":7,"oldest":2,)"), "");
  for (const char* versions : {R"("holdfast":3,"oldest":3,)", R"("holdfast":3,)", R"("holdfast":1,)"})
    EXPECT_THAT(taken(client, versions), HasSubstr(other)) << versions;
  // A client decides whether it speaks to a newer server; a server knows only what is too old for it.
  EXPECT_THAT(taken(server, ""), HasSubstr(other + "1"));
  EXPECT_THAT(taken(server, R"("holdfast":1,)"), HasSubstr(other + "1"));
  EXPECT_EQ(taken(server, R"("holdfast":9,)"), "the other end does not know this run's secret");
}

TEST(Session, ARankHasAKeyOfItsOwn) {
  const RankId rank{3, 5};
  const auto shaken = [](Session& client, Session& server) {
    std::optional<std::string> line = server.opening(), answer;
    std::string why;
    if (!client.handshake(*line, answer, why) || !answer) return false;
    EXPECT_LT(answer->size(), handshake_line_limit);
    line = answer;
    if (!server.handshake(*line, answer, why)) return false;
    line = answer;
    return client.handshake(*line, answer, why);
  };
  const Key secret = Pair::key(1), key = rank_key(secret, rank);
  {
    Session client(Session::End::client, key, rank), server(Session::End::server, secret);
    ASSERT_TRUE(shaken(client, server));
    EXPECT_EQ(server.proved_rank(), rank);
    EXPECT_EQ(server.open(client.seal("said")), "said");
  }
  {
    Pair whole;
    ASSERT_TRUE(whole.shake());
    EXPECT_FALSE(whole.server.proved_rank()) << "it knows the secret";
  }
  for (const RankId other : {RankId{4, 5}, RankId{3, 6}, RankId{3, 4}}) {
    EXPECT_FALSE(same(rank_key(secret, other), key));
    Session client(Session::End::client, key, other), server(Session::End::server, secret);
    EXPECT_FALSE(shaken(client, server)) << "rank " << other.rank << " of attempt " << other.attempt;
  }
  Session nobody(Session::End::client, key), server(Session::End::server, secret);
  EXPECT_FALSE(shaken(nobody, server)) << "the key of a rank is not the secret";
  for (const char* who : {R"("rank":3)", R"("attempt":5)", R"("rank":-1,"attempt":5)",
                          R"("rank":"3","attempt":5)", R"("rank":99999999999,"attempt":5)"}) {
    Session here(Session::End::server, secret);
    std::optional<std::string> answer;
    std::string why;
    EXPECT_FALSE(here.handshake("{\"holdfast\":2," + std::string(who) + "}", answer, why));
    EXPECT_EQ(why, "the other end does not say which rank it is");
  }
}

TEST(Session, ReplayedReorderedReflectedTruncated) {
  Pair p;
  ASSERT_TRUE(p.shake());
  const std::string first = p.client.seal("first"), second = p.client.seal("second");
  EXPECT_FALSE(p.server.open(second)) << "one was dropped, or they changed places";
  EXPECT_EQ(p.server.open(first), "first") << "a refused line does not count";
  EXPECT_FALSE(p.server.open(first)) << "replayed";
  EXPECT_FALSE(p.client.open(first)) << "reflected";
  EXPECT_FALSE(p.client.open(second)) << "reflected";
  for (std::size_t n = 0; n < second.size(); ++n) EXPECT_FALSE(p.server.open(second.substr(0, n)));
  EXPECT_FALSE(p.server.open(second + "0"));
  EXPECT_EQ(p.server.open(second), "second");
}

TEST(Session, EveryByteOfALineIsSealed) {
  Pair p;
  ASSERT_TRUE(p.shake());
  const std::string line = p.client.seal(R"({"m":"finish","exit_code":0})");
  for (std::size_t i = 0; i < line.size(); ++i) {
    for (const int flip : {1, 32, 128}) {
      std::string bent = line;
      bent[i] = static_cast<char>(bent[i] ^ flip);
      EXPECT_FALSE(p.server.open(bent)) << i;
    }
  }
  EXPECT_TRUE(p.server.open(line));
}

class SecretFile : public testing::Test {
 protected:
  SecretFile()
      : file_(std::filesystem::temp_directory_path() / ("holdfast-secret-" + std::to_string(::getpid()))) {}
  ~SecretFile() override { std::filesystem::remove(file_); }
  void write(const std::string& text, unsigned mode = 0600) {
    std::filesystem::remove(file_);
    std::ofstream(file_) << text;
    ::chmod(file_.c_str(), mode);
  }
  void expect_error(const char* what) {
    try {
      read_secret(file_);
      ADD_FAILURE() << "it was read";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
  std::filesystem::path file_;
};

TEST_F(SecretFile, IsReadByItsOwnerAlone) {
  const Key key = random_key();
  EXPECT_FALSE(same(key, random_key()));
  write(to_hex(key) + "\n");
  EXPECT_TRUE(same(read_secret(file_), key));
  write(to_hex(key));
  EXPECT_TRUE(same(read_secret(file_), key));
  for (const unsigned mode : {0640u, 0604u, 0660u, 0644u}) {
    write(to_hex(key), mode);
    expect_error("can be read by others");
  }
  for (const std::string& text :
       {std::string(), to_hex(key).substr(1), to_hex(key) + "0", std::string(64, 'g')}) {
    write(text);
    expect_error("is damaged");
  }
  write(to_hex(key));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(file_.c_str(), 61001, 0), 0);
    EXPECT_TRUE(same(read_secret(file_), key)) << "root reads it";
    ASSERT_EQ(::chown(file_.c_str(), 0, 0), 0);
  }
  const std::filesystem::path aside = file_.string() + "-aside";
  std::filesystem::rename(file_, aside);
  std::filesystem::create_symlink(aside, file_);
  expect_error("it is a symbolic link");
  std::filesystem::remove(file_);
  std::filesystem::remove(aside);
  expect_error("cannot read the run's secret");
}

}  // namespace
}  // namespace holdfast::control
