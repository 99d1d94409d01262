// holdfast generate and eval as a user types them, on runs of holdfast-train.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/train/training_fixture.hpp"

namespace holdfast::train {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

const std::string tokenizer = HOLDFAST_SOURCE_DIR "/tests/tools/text/golden/llama3";

class ModelVerbs : public TrainingFixture {
 protected:
  /// A model that is larger than the tokenizer's vocabulary of 605, as padded ones are.
  void SetUp() override {
    TrainingFixture::SetUp();
    write("model.toml",
          "[model]\nname = \"micro\"\nvocabulary = 640\nwidth = 32\nlayers = 2\nheads = 4\nkv_heads = 2\nffn "
          "= 88\nmax_sequence = 64\n");
  }
  static Finished tool(Words words, const std::string& input = {}) {
    Command command;
    command.argv = std::move(words);
    command.argv.insert(command.argv.begin(), HOLDFAST_TOOL);
    return run(command, std::chrono::seconds(60), input);
  }
  static std::vector<json> lines(const std::string& text) {
    std::vector<json> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
    return out;
  }
  void expect_refused(const Words& words, int status, const std::string& says) const {
    const Finished done = tool(words);
    EXPECT_EQ(done.status, status) << says;
    EXPECT_THAT(done.err, HasSubstr(says));
    EXPECT_EQ(done.out, "");
  }

  /// Documents of 3 to 29 tokens, whose first is not learned.
  void write_documents(const std::string& name, int count) const {
    const auto all = learnable_tokens(vocabulary, 32 * count);
    data::TokenFileWriter writer(path(name), vocabulary);
    for (int i = 0; i < count; ++i) {
      const auto text = std::span(all).subspan(32 * i, 3 + i * 7 % 27);
      writer.begin_document();
      writer.append(text.first(1), false);
      writer.append(text.subspan(1));
    }
    writer.finish();
  }
  double held_out(const std::string& dir) const { return metrics(dir).back()["held_out_loss"]; }
  json eval(Words words) const {
    words.insert(words.begin(), "eval");
    words.insert(words.end(), {"--tokens", path("held_out.bin"), "--json"});
    const Finished done = tool(words);
    EXPECT_EQ(done.status, 0) << done.err;
    return done.status == 0 ? json::parse(done.out) : json{{"loss", -1}};
  }
};

TEST_F(ModelVerbs, EvalIsTheHeldOutLossOfTheRunToTheLastBit) {
  write_documents("held_out.bin", 40);
  for (const auto& [world, sets] : std::vector<std::pair<int, Sets>>{
           {1, {}},
           {2, {"precision.parameters=bf16", "precision.reduce=bf16", "data.boundaries=false"}},
           {2,
            {"lora.rank=4", "lora.alpha=8", "lora.dropout=0.1", "optim.lr=2e-2", "train.micro_batch=1"}}}) {
    const std::string dir = "run" + std::to_string(sets.size());
    Sets all = {"data.validation=" + path("held_out.bin"), "eval.every=10", "eval.samples=1000"};
    all.insert(all.end(), sets.begin(), sets.end());
    if (sets.size() == 5) all.push_back("model.weights=" + path("run0"));
    const Finished done = train(world, dir, all);
    ASSERT_EQ(done.status, 0) << done.err;
    const json whole = eval({path(dir)});
    EXPECT_EQ(whole["loss"].get<double>(), held_out(dir)) << dir;
    EXPECT_NEAR(whole["perplexity"].get<double>(), std::exp(held_out(dir)), 1e-9 * std::exp(held_out(dir)));
    EXPECT_EQ(whole["sequence"], 32);
    if (world == 1) {
      const json some = eval({checkpoint(dir, 5).string(), "--samples", "3"});
      EXPECT_NE(some["loss"], whole["loss"]) << "another checkpoint, other samples";
      EXPECT_EQ(some["samples"], 3);
    }
  }
  // Adapters find the weights that they were trained on, and take no others.
  const Finished done =
      tool({"generate", path("run5"), "--tokenizer", tokenizer, "--prompt", "x", "--max-tokens", "3"});
  EXPECT_EQ(done.status, 0) << done.err;
  for (const Words& words : {Words{"eval", path("run5"), "--tokens", path("held_out.bin")},
                             Words{"generate", path("run5"), "--tokenizer", tokenizer, "--prompt", "x"}}) {
    Words other = words;
    other.insert(other.end(), {"--base", path("run3")});
    expect_refused(other, 2, "belong to other weights");
  }
}

TEST_F(ModelVerbs, GenerateWritesTheSameInEveryBatchAndWithEverySeedItsOwn) {
  ASSERT_EQ(train(1, "run").status, 0);
  write("prompts.jsonl",
        "{\"prompt\": \"The root\"}\n\n{\"prompt\": \"\"}\n{\"prompt\": \"\\u00fc "
        "<|eot_id|>\"}\n{\"prompt\": \"The root\"}\n");
  const auto with = [&](Words more) {
    more.insert(more.begin(), {"generate", path("run"), "--tokenizer", tokenizer, "--json", "--max-tokens",
                               "9", "--file", path("prompts.jsonl")});
    const Finished done = tool(more);
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("tokens/s"));
    return done.out;
  };
  const Words drawn = {"--temperature", "1.5", "--top-k", "200", "--top-p", "0.99"};
  const auto draw = [&](Words more) {
    return more.insert(more.end(), drawn.begin(), drawn.end()), with(more);
  };
  const std::string out = draw({"--batch", "1"});
  EXPECT_EQ(draw({"--batch", "3"}), out);
  EXPECT_EQ(draw({"--seed", "1"}), out);
  EXPECT_NE(draw({"--seed", "2"}), out);
  EXPECT_EQ(with({}), with({"--temperature", "0", "--seed", "5"}));
  EXPECT_NE(with({}), out);
  const auto answers = lines(out);
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_NE(answers[0]["tokens"], answers[3]["tokens"]) << "equal prompts are drawn apart";
  EXPECT_EQ(answers[0]["prompt_tokens"], answers[3]["prompt_tokens"]);
  EXPECT_EQ(answers[1]["prompt_tokens"].size(), 1u) << "the begin token";
  EXPECT_EQ(answers[2]["prompt_tokens"].back(), 604) << "special tokens are what they read like";
  for (const json& answer : answers) {
    EXPECT_TRUE(answer["stop"] == "length" || answer["stop"] == "end") << answer;
    EXPECT_EQ(answer["schema_version"], 1);
    EXPECT_TRUE(answer["text"].is_string());
  }
}

TEST_F(ModelVerbs, GenerateAnswersLineByLine) {
  ASSERT_EQ(train(1, "run").status, 0);
  const Words words = {"generate", path("run"), "--tokenizer", tokenizer, "--max-tokens", "5"};
  const Finished read = tool(words, "The root\n\n of kelp\n");
  ASSERT_EQ(read.status, 0) << read.err;
  Words prompts = words;
  prompts.insert(prompts.end(), {"--prompt", "The root", "--prompt", " of kelp"});
  const Finished given = tool(prompts);
  ASSERT_EQ(given.status, 0) << given.err;
  EXPECT_THAT(given.out, AllOf(HasSubstr("[1] The root\n"), HasSubstr("[2]  of kelp\n")));
  const auto answer_of = [&](const std::string& prompt) {
    const Finished done =
        tool({"generate", path("run"), "--tokenizer", tokenizer, "--max-tokens", "5", "--prompt", prompt});
    EXPECT_EQ(done.status, 0) << done.err;
    return done.out;
  };
  EXPECT_EQ(read.out, answer_of("The root") + answer_of(" of kelp"));
  // The card of the run's tokens names the tokenizer that made them, for as long as that is what it was.
  const auto write_card = [&](const std::string& identity) {
    write("tokens.bin.card.json", json{{"tokenizer", {{"path", tokenizer}, {"identity", identity}}}}.dump());
  };
  const Words unnamed = {"generate", path("run"), "--max-tokens", "5", "--prompt", "The root"};
  write_card(data::hex(data::hash_bytes(files::read_text(tokenizer + "/tokenizer.json"))));
  EXPECT_EQ(tool(unnamed).out, answer_of("The root"));
  write_card(std::string(32, '0'));
  expect_refused(unnamed, 2, "there is no tokenizer beside");
}

/// A model of one's own, from text to a folder that says itself how texts begin and end.
TEST_F(ModelVerbs, AnExportHasTheTokenizerThatMadeTheTokens) {
  std::filesystem::create_directory(path("own"));
  write("text.txt", files::read_text(HOLDFAST_SOURCE_DIR "/docs/architecture.md"));
  const Finished prepared = tool({"data", "prepare", "--input", path("text.txt"), "--output",
                                  path("own/tokens.bin"), "--train-vocabulary", "400"});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  ASSERT_EQ(train(1, "run", {"data.tokens=" + path("own/tokens.bin")}).status, 0);
  const auto tokens = [&](const Words& model) {
    Words words = {"generate", "--json", "--max-tokens", "5", "--prompt", "The root"};
    words.insert(words.begin() + 1, model.begin(), model.end());
    const Finished done = tool(words);
    EXPECT_EQ(done.status, 0) << done.err;
    return done.status == 0 ? json::parse(done.out) : json();
  };
  const json of_run = tokens({path("run")});
  EXPECT_EQ(of_run["prompt_tokens"].front(), 1);
  for (const Words& more :
       {Words{}, Words{"--tokenizer", path("own")}, Words{"--tokenizer", path("own/tokens.model")}}) {
    const std::string out =
        path("out" + std::to_string(more.size()) + (more.empty() ? "" : more[1].substr(more[1].size() - 3)));
    Words words = {"ckpt", "export", path("run"), out};
    words.insert(words.end(), more.begin(), more.end());
    const Finished done = tool(words);
    ASSERT_EQ(done.status, 0) << done.err;
    const auto in = [&](const char* name) { return json::parse(files::read_text(out + "/" + name)); };
    EXPECT_EQ(in("config.json")["bos_token_id"], 1);
    EXPECT_EQ(in("config.json")["eos_token_id"], 2);
    EXPECT_EQ(in("generation_config.json"),
              json({{"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", 2}}));
    EXPECT_EQ(in("tokenizer_config.json")["eos_token"], "</s>");
    EXPECT_EQ(in("tokenizer.json")["model"]["vocab"].size(), 400u);
    EXPECT_EQ(files::read_text(out + "/tokenizer.model"), files::read_text(path("own/tokens.model")));
    EXPECT_EQ(tokens({out}), of_run) << out;
    EXPECT_EQ(tokens({path("run"), "--tokenizer", path("own")}), of_run);
  }
  // Of adapters on such a model the whole of it has a tokenizer, too.
  ASSERT_EQ(train(1, "adapted",
                  {"data.tokens=" + path("own/tokens.bin"), "lora.rank=2", "model.weights=" + path("run")})
                .status,
            0);
  const Finished merged = tool({"ckpt", "export", path("adapted"), path("merged"), "--merge"});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(json::parse(files::read_text(path("merged/generation_config.json")))["eos_token_id"], 2);
  EXPECT_EQ(files::read_text(path("merged/tokenizer.json")), files::read_text(path("out0/tokenizer.json")));
}

TEST_F(ModelVerbs, AnExportSaysOfAnyTokenizerHowTextsEnd) {
  ASSERT_EQ(train(1, "run").status, 0);
  std::filesystem::create_directory(path("bare"));
  std::filesystem::copy(tokenizer + "/tokenizer.json", path("bare/tokenizer.json"));
  const Finished done = tool({"ckpt", "export", path("run"), path("out"), "--tokenizer", path("bare")});
  ASSERT_EQ(done.status, 0) << done.err;
  const auto in = [&](const char* name) { return json::parse(files::read_text(path("out/") + name)); };
  EXPECT_EQ(in("tokenizer_config.json")["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(in("tokenizer_config.json")["eos_token"], "<|end_of_text|>");
  EXPECT_EQ(in("generation_config.json")["eos_token_id"], in("config.json")["eos_token_id"]);
  EXPECT_TRUE(in("config.json")["eos_token_id"].is_number());
}

TEST_F(ModelVerbs, GenerateTalksByTheTemplate) {
  ASSERT_EQ(train(1, "run").status, 0);
  std::filesystem::create_directory(path("chat"));
  std::filesystem::copy(tokenizer + "/tokenizer.json", path("chat/tokenizer.json"));
  write("chat/tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})");
  write("chat/chat_template.jinja",
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}");
  const Words words = {"generate", path("run"), "--tokenizer", path("chat"), "--max-tokens", "5", "--chat"};
  write("prompts.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <|eot_id|>\"}]}\n"
        "{\"instruction\": \"Hi\", \"input\": \"you\", \"output\": \"Hello\"}\n");
  Words file = words;
  file.insert(file.end(), {"--json", "--system", "Be brief.", "--file", path("prompts.jsonl")});
  const Finished done = tool(file);
  ASSERT_EQ(done.status, 0) << done.err;
  const auto answers = lines(done.out);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["messages"].size(), 2u) << "the system speaks first";
  EXPECT_EQ(answers[1]["messages"].back()["content"], "Hi\n\nyou") << "the answer is left out";
  const json& tokens = answers[0]["prompt_tokens"];
  EXPECT_EQ(std::ranges::count(tokens, json(604)), 2) << "what a user says is text";
  EXPECT_EQ(tokens[0], 600);
  const Finished talk = tool(words, "Hi\nAnd then?\n");
  EXPECT_EQ(talk.status, 0) << talk.err;
  EXPECT_EQ(tool(words, "Hi\n").out, talk.out.substr(0, tool(words, "Hi\n").out.size()));
}

TEST_F(ModelVerbs, SayWhatIsWrong) {
  ASSERT_EQ(train(1, "run").status, 0);
  const std::string run = path("run");
  const auto generate = [&](Words words) { return words.insert(words.begin(), {"generate", run}), words; };
  expect_refused(generate({"--prompt", "x"}), 2, "there is no tokenizer beside");
  expect_refused(generate({"--tokenizer", tokenizer, "--prompt", "\xFF"}), 2, "not valid UTF-8");
  expect_refused(generate({"--tokenizer", tokenizer, "--prompt", std::string(400, 'x')}), 2,
                 "longest sequence is 64");
  expect_refused(generate({"--tokenizer", tokenizer, "--prompt", "x", "--chat"}), 2,
                 "there is no chat template");
  expect_refused(generate({"--tokenizer", tokenizer, "--prompt", "x", "--top-p", "2"}), 2, "top-p is 2");
  expect_refused(generate({"--tokenizer", tokenizer, "--prompt", "x", "--dtype", "fp16"}), 2, "fp16");
  expect_refused(generate({"--tokenizer", tokenizer, "--file", path("none.txt")}), 2, "none.txt");
  expect_refused({"generate", path("nowhere"), "--tokenizer", tokenizer, "--prompt", "x"}, 2, "nowhere");
  write("bad.jsonl", "{\"prompt\": \"x\"}\n{\"text\": \"y\"}\n");
  expect_refused(generate({"--tokenizer", tokenizer, "--file", path("bad.jsonl")}), 2, "line 2 of");
  // A tokenizer whose files name other tokens is warned of; a larger one is refused.
  std::filesystem::create_directory(path("other"));
  std::filesystem::copy(tokenizer + "/tokenizer.json", path("other/tokenizer.json"));
  write("other/config.json", R"({"eos_token_id": 5})");
  const Finished warned =
      tool(generate({"--tokenizer", path("other"), "--prompt", "x", "--max-tokens", "2"}));
  EXPECT_EQ(warned.status, 0) << warned.err;
  EXPECT_THAT(warned.err, HasSubstr("ends a text is token 5 there and 601"));
  write("model.toml",
        "[model]\nname = \"micro\"\nvocabulary = 128\nwidth = 32\nlayers = 2\nheads = 4\nkv_heads = 2\nffn = "
        "88\nmax_sequence = 64\n");
  ASSERT_EQ(train(1, "small").status, 0);
  expect_refused({"generate", path("small"), "--tokenizer", tokenizer, "--prompt", "x"}, 2,
                 "has 605 tokens, and the model 128");
  write_tokens("large.bin", 200, 300);
  expect_refused({"eval", path("small"), "--tokens", path("large.bin")}, 2,
                 "vocabulary is 200, and the model's 128");
  expect_refused({"eval", run, "--tokens", path("none.bin")}, 2, "none.bin");
  expect_refused({"eval", run, "--tokens", path("tokens.bin"), "--sequence", "65"}, 2,
                 "longest sequence is 64");
}

}  // namespace
}  // namespace holdfast::train
