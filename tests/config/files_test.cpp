// The files of configs/: they load, and say what is known of the models and clusters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/env.hpp"
#include "src/config/load.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using test::refusal_of;
using test::Scratch;
using testing::HasSubstr;

TEST(Files, ModelsHaveTheirPublishedSizes) {
  EXPECT_EQ(parameters_of(load_model("tiny")), 1262720);
  EXPECT_EQ(parameters_of(load_model("llama2-7b")), 6738415616);
  EXPECT_EQ(parameters_of(load_model("llama2-13b")), 13015864320);
  EXPECT_EQ(parameters_of(load_model("llama2-70b")), 68976648192);
  EXPECT_EQ(parameters_of(load_model("llama3-8b")), 8030261248);
  EXPECT_EQ(parameters_of(load_model("llama3.1-8b")), 8030261248);
  EXPECT_EQ(parameters_of(load_model("llama3-70b")), 70553706496);
  EXPECT_EQ(parameters_of(load_model("qwen2.5-7b")), 7615616512);
  EXPECT_EQ(parameters_of(load_model("qwen3-0.6b")), 596049920);
  EXPECT_EQ(parameters_of(load_model("qwen3-1.7b")), 1720574976);
  EXPECT_EQ(parameters_of(load_model("qwen3-4b")), 4022468096);
  EXPECT_EQ(parameters_of(load_model("qwen3-8b")), 8190735360);
  EXPECT_EQ(parameters_of(load_model("qwen3-14b")), 14768307200);
  EXPECT_EQ(parameters_of(load_model("qwen3-32b")), 32762123264);
  EXPECT_EQ(parameters_of(load_model("mistral-nemo-12b")), 12247782400);
  EXPECT_EQ(parameters_of(load_model("llama-124m")), 123587328);
  EXPECT_EQ(parameters_of(load_model("llama-1.5b")), 1547814912);
}

TEST(Files, ModelsAreValid) {
  for (const char* name : {"tiny", "llama2-7b", "llama2-13b", "llama2-70b", "llama3-8b", "llama3.1-8b",
                           "llama3-70b", "qwen2.5-7b", "llama-124m", "mistral-nemo-12b", "qwen3-0.6b",
                           "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
    const auto shape = load_model(name);
    EXPECT_EQ(shape.name, name);
    EXPECT_NO_THROW(check(RunConfig{}, shape)) << name;
  }
  EXPECT_EQ(load_model("llama3.1-8b").rope_scaling_factor, 8);
  EXPECT_EQ(load_model("llama3-8b").rope_scaling_factor, 1);
}

TEST(Files, ClustersLoad) {
  for (const char* name : {"minipod", "jeroboam", "nabuchodonosor"}) {
    const auto facts = load_cluster(name);
    EXPECT_EQ(facts.name, name);
    EXPECT_EQ(facts.gpus.size(), 8u);
    EXPECT_FALSE(facts.control_interface.empty());
  }
  const auto n = load_cluster("nabuchodonosor");
  EXPECT_EQ(n.scalable_units.size(), 4u);
  EXPECT_EQ(n.gpus[5].nic, "mlx5_9");
  EXPECT_EQ(n.gpus[5].rail, 5);
  EXPECT_EQ(n.storage_write_bytes_s, 1.95e12);
  EXPECT_EQ(n.nic_bytes_s, 50e9);
}

TEST(Files, TheQuickstartIsValid) {
  const auto c = load("quickstart").config;
  const auto facts = load_cluster(c.cluster.file);
  check(resolve(c, facts), load_model(c.model.file));
  EXPECT_EQ(c.cluster.nodes, 2);
  EXPECT_EQ(c.cluster.spares, 2);
}

TEST(Files, WhatIsWrittenReadsBackTheSame) {
  const Scratch dir;
  for (const char* name : {"minipod", "jeroboam", "nabuchodonosor"}) {
    const auto facts = load_cluster(name);
    EXPECT_EQ(load_cluster(dir.write("cluster.toml", to_toml(facts)).string()), facts);
  }
  for (const char* name : {"llama3.1-8b", "qwen2.5-7b", "qwen3-8b", "llama-124m", "mistral-nemo-12b"}) {
    const auto read = load_model(name);
    EXPECT_EQ(load_model(dir.write("model.toml", to_toml(read)).string()), read);
  }
  auto phi4 = load_model("tiny");  // lists, too
  phi4.rope_type = RopeType::longrope;
  phi4.rope_short_factors = {1, 1.0000001, 2.5};
  EXPECT_EQ(load_model(dir.write("model.toml", to_toml(phi4)).string()), phi4);
  auto shape = load_model("llama2-70b");
  shape.name = "a \"name\" $(x)";
  EXPECT_EQ(load_model(dir.write("model.toml", to_toml(shape)).string()), shape);
}

TEST(Files, AnUnknownNameListsTheOthers) {
  const auto refusal = refusal_of([] { load_model("llama2-7B"); });
  EXPECT_EQ(refusal.exit, Exit::usage);
  EXPECT_THAT(
      refusal.text,
      HasSubstr("there is no model called 'llama2-7B' (there are llama-1.5b, llama-124m, "
                "llama2-13b, llama2-70b, llama2-7b, llama3-70b, llama3-8b, "
                "llama3.1-8b, mistral-nemo-12b, qwen2.5-7b, qwen3-0.6b, qwen3-1.7b, qwen3-14b, qwen3-32b, "
                "qwen3-4b, qwen3-8b, tiny). Did you mean llama2-7b?"));
  EXPECT_THAT(refusal_of([] { load_cluster("nabuchodonozor"); }).text,
              HasSubstr("Did you mean nabuchodonosor?"));
  EXPECT_THAT(refusal_of([] { load("quickstrat"); }).text, HasSubstr("Did you mean quickstart?"));
}

TEST(Files, AChosenFolderComesFirst) {
  const Scratch dir;
  dir.write(
      "models/mine.toml",
      "[model]\nvocabulary = 8\nwidth = 8\nlayers = 1\nheads = 2\nkv_heads = 1\nffn = 8\nmax_sequence = 8\n");
  env::set("HOLDFAST_CONFIGS", dir.path());
  EXPECT_EQ(load_model("mine").name, "mine");
  EXPECT_EQ(load_model("tiny").name, "tiny");
  ::unsetenv("HOLDFAST_CONFIGS");
}

TEST(Files, ModelsAreStrict) {
  const Scratch dir;
  const auto says = [&](const std::string& text) {
    const auto file = dir.write("m.toml", text).string();
    return refusal_of([&] { load_model(file); }).text;
  };
  EXPECT_THAT(says("[model]\nwidht = 3\n"), HasSubstr("m.toml:2). Did you mean model.width?"));
  EXPECT_THAT(says("[model]\nwidth = 8\n"), HasSubstr("model.vocabulary is missing ("));
}

TEST(Files, ClustersAreStrict) {
  const Scratch dir;
  const std::string head = "[cluster]\ngpu = \"h100\"\ngpus_per_node = 2\ncontrol_interface = \"eth0\"\n";
  const std::string unit = "[[unit]]\nname = \"su1\"\nnodes = \"n[1-2]\"\n",
                    gpus = "[[gpu]]\ngpu = 1\nrail = 1\n[[gpu]]\ngpu = 0\nrail = 0\n";
  const auto write = [&](const std::string& text) { return dir.write("c.toml", text).string(); };
  const auto says = [&](const std::string& text) {
    return refusal_of([file = write(text)] { load_cluster(file); }).text;
  };
  EXPECT_EQ(load_cluster(write(head + unit + gpus)).gpus[1].gpu, 1);
  EXPECT_EQ(load_cluster(write(head + "gpu_job_mapping = \"/run/jobs\"\n" + unit + gpus)).gpu_job_mapping,
            "/run/jobs");
  EXPECT_THAT(says(head + "gpu_job_mapping = \"jobs\"\n" + unit + gpus),
              HasSubstr("cluster.gpu_job_mapping is no absolute path (it is 'jobs'"));
  EXPECT_THAT(says(head + "nams = 1\n"), HasSubstr("unknown key cluster.nams"));
  EXPECT_THAT(says(head + gpus), HasSubstr("a cluster has no nodes"));
  EXPECT_THAT(says(head + unit), HasSubstr("the [[gpu]] tables do not list GPUs 0 to 1 once each"));
  EXPECT_THAT(says(head + unit + gpus + "[[gpu]]\ngpu = 0\nrail = 0\n"), HasSubstr("once each"));
  EXPECT_THAT(says(head + "[[unit]]\nname = \"su1\"\n" + gpus), HasSubstr("unit.nodes is missing ("));
  EXPECT_THAT(says(head + "[unit]\nname = \"su1\"\n"), HasSubstr("Write [[unit]]?"));
  EXPECT_THAT(says(head + unit + "nods = \"x\"\n"), HasSubstr("Did you mean unit.nodes?"));
  EXPECT_THAT(says("[[cluster]]\n"), HasSubstr("may not be repeated"));
}

}  // namespace
}  // namespace holdfast::config
