#include "src/comm/ucx_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"

namespace holdfast::comm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = UcxTransport::Kind;

const std::vector<UcxTransport> node{
    {"self", "memory0", Kind::itself},      {"tcp", "lo", Kind::network},
    {"tcp", "eth0", Kind::network},         {"tcp", "ib0", Kind::network},
    {"sysv", "memory", Kind::node},         {"rc_verbs", "mlx5_0:1", Kind::network},
    {"rc_mlx5", "mlx5_0:1", Kind::network}, {"rc_mlx5", "mlx5_1:1", Kind::network}};

std::string refusal(const std::function<void()>& call, Exit exit) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), exit);
    return error.what();
  }
  return "no error";
}

TEST(UcxChoice, TheDeviceThatIsNamedAndTheNode) {
  EXPECT_EQ(choose_transports(node, "mlx5_0:1", true),
            (UcxChoice{"rc_mlx5,rc_verbs,self,sysv", "mlx5_0:1", false}));
  EXPECT_EQ(choose_transports(node, "mlx5_0:1", false), (UcxChoice{"rc_mlx5,rc_verbs", "mlx5_0:1", false}));
  EXPECT_EQ(choose_transports(node, "lo", false), (UcxChoice{"tcp", "lo", true}));
}

TEST(UcxChoice, WithoutANameEveryDeviceButLoopback) {
  EXPECT_EQ(choose_transports(node, "", true),
            (UcxChoice{"rc_mlx5,rc_verbs,self,sysv,tcp", "eth0,ib0,mlx5_0:1,mlx5_1:1", false}));
  // A machine without a network has its memory.
  const std::vector<UcxTransport> alone{{"tcp", "lo", Kind::network}, {"sysv", "memory", Kind::node}};
  EXPECT_EQ(choose_transports(alone, "", true), (UcxChoice{"sysv", "", false}));
  EXPECT_THAT(refusal([&] { choose_transports(alone, "", false); }, Exit::runtime),
              HasSubstr("only loopback"));
}

TEST(UcxChoice, ADeviceThatIsNotThereIsRefusedWithThoseThatAre) {
  EXPECT_THAT(refusal([] { choose_transports(node, "mlx5_7:1", true); }, Exit::usage),
              AllOf(HasSubstr("'mlx5_7:1'"), HasSubstr("eth0, ib0, lo, mlx5_0:1, mlx5_1:1")));
}

const char* const printed = R"(#
# UCP endpoint node17
#
#               peer: <no debug data>
#                 lane[0]:  1:rc_mlx5/mlx5_0:1.0 md[1]     -> md[1]/ib/sysdev[255] rma_bw#0 am am_bw#0 wireup keepalive
#                 lane[1]:  2:tcp/eth0.1 md[1]      -> md[1]/tcp/sysdev[255] rma_bw#1
#                 lane[2]:  4:sysv/memory.0 md[2]   -> md[2]/sysv/sysdev[255] rkey_ptr
#
#                tag_send: 0..<egr/short>..2038..<egr/bcopy>..8246..<egr/zcopy>..263062..<rndv>..(inf)
)";

TEST(UcxChoice, LanesOfAnEndpointAsItIsPrinted) {
  const auto lanes = lanes_in(printed);
  EXPECT_THAT(lanes, ElementsAre("rc_mlx5/mlx5_0:1", "sysv/memory", "tcp/eth0"));
  EXPECT_EQ(describe_lanes(lanes), "rc_mlx5/mlx5_0:1, tcp/eth0, shared memory inside the node");
  EXPECT_EQ(describe_lanes({}), "") << "nothing was sent yet";
}

TEST(UcxChoice, ALaneThatThePlanDoesNotNameIsRefused) {
  EXPECT_THAT(refusal([] { refuse_other_lanes(lanes_in(printed), "mlx5_0:1"); }, Exit::runtime),
              AllOf(HasSubstr("tcp/eth0"), HasSubstr("mlx5_0:1")));
  EXPECT_THAT(refusal([] { refuse_other_lanes({"tcp/lo"}, ""); }, Exit::runtime), HasSubstr("tcp/lo"));
  refuse_other_lanes({"rc_mlx5/mlx5_0:1", "sysv/memory"}, "mlx5_0:1");
  refuse_other_lanes({"tcp/eth0"}, "");
}

}  // namespace
}  // namespace holdfast::comm
