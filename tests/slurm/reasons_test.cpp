#include "slurm/reasons.hpp"

#include <gtest/gtest.h>

#include <map>

namespace holdfast::slurm {
namespace {

TEST(Reasons, in_words) {
  const std::map<std::string, std::string> words = {
      {"Priority", "jobs of a higher priority come first"},
      {"ReqNodeNotAvail, UnavailableNodes:dgx003", "nodes that it asks for are reserved, drained or down"},
      {"AssocGrpNodeLimit", "more nodes than the account's jobs may have together"},
      {"AssocGrpCPUMinutesLimit", "more minutes of CPUs than the account's jobs may have together"},
      {"AssocMaxJobsLimit", "more running jobs than you may have in the account"},
      {"AssocMaxSubmitJobLimit", "more jobs in the queue than you may have in the account"},
      {"AssocMaxCpuPerNode", "more CPUs on a node than a job of the account may have"},
      {"QOSMaxWallDurationPerJobLimit", "more time than a job of the QOS may have"},
      {"QOSMaxNodePerUserLimit", "more nodes than you may have in the QOS"},
      {"QOSMaxGRESPerAccount", "more GRES (GPUs) than one account may have in the QOS"},
      {"QOSMinGRES", "fewer GRES (GPUs) than a job of the QOS must have"},
      {"QOSGrpUnknown", "more resources than the QOS's jobs may have together"},
      {"", ""},
      {"FedJobLock", ""}};
  for (const auto& [reason, meaning] : words) EXPECT_EQ(reason_in_words(reason), meaning) << reason;
}

TEST(Reasons, that_do_not_go_away) {
  for (const char* reason :
       {"PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "AccountNotAllowed", "QOSNotAllowed",
        "QOSMaxWallDurationPerJobLimit", "AssocMaxNodePerJobLimit", "QOSMinCpuNotSatisfied", "InvalidAccount",
        "DependencyNeverSatisfied"})
    EXPECT_TRUE(never_starts(reason)) << reason;
  for (const char* reason : {"Priority", "Resources", "AssocGrpNodeLimit", "AssocMaxJobsLimit",
                             "QOSGrpCpuLimit", "QOSMaxNodePerUserLimit", "Dependency", "", "a new word"})
    EXPECT_FALSE(never_starts(reason)) << reason;
}

}  // namespace
}  // namespace holdfast::slurm
