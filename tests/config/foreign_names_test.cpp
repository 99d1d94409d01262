// Names of other launchers and trainers: each is answered with settings that exist, whatever table it is in.
#include "src/config/foreign_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>

#include "src/config/bind.hpp"
#include "src/config/load.hpp"
#include "tests/config/scratch.hpp"

namespace holdfast::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::set<std::string> all_settings() {
  std::set<std::string> out;
  for (const auto& setting : run_settings()) out.insert(setting.name());
  for (const auto& setting : model_settings()) out.insert(setting.name());
  return out;
}

TEST(ForeignNames, AreSpeltPlainAndOnce) {
  std::set<std::string> seen;
  for (const auto& known : foreign_names()) {
    const std::string name = known.name;
    EXPECT_TRUE(std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) && !std::isupper(c);
    })) << name;
    EXPECT_TRUE(seen.insert(name).second) << name;
  }
}

TEST(ForeignNames, AreAnsweredWithSettingsThatExist) {
  const auto settings = all_settings();
  std::set<std::string> tables;
  for (const auto& name : settings) tables.insert(name.substr(0, name.find('.')));
  const std::regex dotted("([a-z]+)\\.([a-z_0-9]+)");
  for (const auto& known : foreign_names()) {
    const std::string answer = known.answer;
    for (auto at = std::sregex_iterator(answer.begin(), answer.end(), dotted); at != std::sregex_iterator();
         ++at)
      if (tables.contains((*at)[1])) {
        EXPECT_TRUE(settings.contains(at->str())) << known.name << ": " << at->str();
      }
  }
}

TEST(ForeignNames, AreKnownInEveryTableAndSpelling) {
  const test::Scratch dir;
  struct Case {
    const char *key, *answer;
  };
  for (const auto& [key, answer] :
       {Case{"global_batch_size", "train.global_batch"},
        {"train_batch_size", "train.global_batch"},
        {"batch_size", "train.micro_batch"},
        {"micro_batch_size", "train.micro_batch"},
        {"train_micro_batch_size_per_gpu", "train.micro_batch"},
        {"per_device_train_batch_size", "train.micro_batch"},
        {"per-device-train-batch-size", "train.micro_batch"},
        {"gradient_accumulation_steps", "train.global_batch, train.micro_batch and the number of ranks"},
        {"seq_len", "train.sequence"},
        {"seq_length", "train.sequence"},
        {"max_seq_length", "train.sequence"},
        {"sequence_len", "train.sequence"},
        {"max_steps", "train.steps"},
        {"train_iters", "train.steps"},
        {"num_train_epochs", "train.epochs"},
        {"num_epochs", "train.epochs"},
        {"warmup_ratio", "optim.warmup_ratio"},
        {"early_stopping_patience", "eval.patience"},
        {"learning_rate", "optim.lr"},
        {"lr", "optim.lr"},
        {"warmup_steps", "optim.warmup_steps"},
        {"adam_beta1", "optim.beta1"},
        {"max_grad_norm", "optim.clip_norm"},
        {"dtype", "precision.parameters"},
        {"torch_dtype", "precision.parameters"},
        {"bf16", "precision.parameters"},
        {"fp16", "precision.parameters"},
        {"gradient_checkpointing", "train.activation_checkpointing"},
        {"activation_checkpoint", "train.activation_checkpointing"},
        {"zero_stage", "shard.strategy"},
        {"tensor_model_parallel_size", "there is no tensor parallelism"},
        {"hidden_size", "model.width"},
        {"num_layers", "model.layers"},
        {"num_hidden_layers", "model.layers"},
        {"num_attention_heads", "model.heads"},
        {"lora_r", "lora.rank"},
        {"lora_alpha", "lora.alpha"},
        {"save_steps", "checkpoint.every"},
        {"save_interval", "checkpoint.every"},
        {"resume_from_checkpoint", "run.resume"},
        {"num_nodes", "cluster.nodes"},
        {"devices", "cluster.ranks_per_node"}})
    for (const std::string table : {"", "run", "train", "checkpoint", "trainer"}) {
      SCOPED_TRACE(table + "." + key);
      // Keys that are ours, too: there the table is what is wrong.
      if (table == "trainer" && (std::string(key) == "lr" || std::string(key) == "warmup_steps" ||
                                 std::string(key) == "warmup_ratio"))
        continue;
      const std::string header = table.empty() ? "" : "[" + table + "]\n";
      const auto file = dir.write("job.toml", header + key + " = 1\n");
      EXPECT_THAT(test::refusal_of([&] { load(file); }).text,
                  AllOf(HasSubstr("unknown key "), HasSubstr(answer)));
    }
}

TEST(ForeignNames, OfATableAndOfAModelFile) {
  const test::Scratch dir;
  const auto says = [&](const std::string& text) {
    const auto file = dir.write("job.toml", text);
    return test::refusal_of([&] { load(file); }).text;
  };
  EXPECT_THAT(says("[zero_optimization]\nstage = 3\n"),
              AllOf(HasSubstr("unknown table zero_optimization"), HasSubstr("DeepSpeed's"),
                    HasSubstr("shard.strategy")));
  EXPECT_THAT(says("[training]\nsteps = 3\n"), HasSubstr("unknown table training"));
  EXPECT_THAT(
      test::refusal_of([&] { load_model(dir.write("m.toml", "[model]\nhidden_size = 64\n").string()); }).text,
      HasSubstr("Hugging Face's hidden_size is here model.width"));
}

}  // namespace
}  // namespace holdfast::config
