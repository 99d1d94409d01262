#include "src/config/rank_promises.hpp"

#include <gtest/gtest.h>

#include <string>

#include "src/config/choices.hpp"

namespace holdfast::config {
namespace {

constexpr bool yes = true, no = false;

struct Row {
  std::string program;
  RankKind kind;
  RankPromises promises;
};

// clang-format off
const Row rows[] = {
    // program               kind                   trains_as_set
    //                                                   reports            steps_together
    //                                                                           writes_run_dir
    //                                                                                our_verdicts
    //                                                                                     one_process
    //                                                                                         saves_on_sigterm
    //                                                                                              client_buffers
    //                                                                                                   speaks_mpi
    {"holdfast-train",      RankKind::automatic, {yes, Reports::always,   yes, yes, yes, yes, no,  no,  yes}},
    {"/o/b/holdfast-train", RankKind::automatic, {yes, Reports::always,   yes, yes, yes, yes, no,  no,  yes}},
    {"holdfast-train.sh",   RankKind::automatic, {no,  Reports::perhaps,  no,  no,  no,  no,  no,  yes, no}},
    {"python3",             RankKind::automatic, {no,  Reports::perhaps,  no,  no,  no,  no,  no,  yes, no}},
    {"python3",             RankKind::client,    {no,  Reports::expected, no,  no,  no,  no,  no,  yes, no}},
    {"python3",             RankKind::sigterm,   {no,  Reports::never,    no,  no,  no,  no,  yes, yes, no}},
    {"python3",             RankKind::plain,     {no,  Reports::never,    no,  no,  no,  no,  no,  yes, no}},
};
// clang-format on

TEST(RankPromises, FollowFromTheProgramAndItsKind) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.program + ", " + name_of(row.kind));
    Rank rank;
    rank.command = {row.program, "holdfast-train"};
    rank.kind = row.kind;
    RankPromises expected = row.promises;
    EXPECT_TRUE(promises_of(rank) == expected);
    for (const char* launch : {"mpi", "direct"}) {
      rank.launch = launch;
      expected.speaks_mpi = rank.launch == "mpi";
      EXPECT_TRUE(promises_of(rank) == expected) << launch;
    }
  }
}

TEST(RankPromises, OfTheDefaultProgramAreTheDefaults) {
  EXPECT_TRUE(promises_of({}) == RankPromises{});
  Rank none;
  none.command.clear();
  EXPECT_FALSE(promises_of(none) == RankPromises{});
}

}  // namespace
}  // namespace holdfast::config
