#include "src/tools/chat/conversation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/tools/chat/byte_tokenizer.hpp"
#include "tests/tools/chat/golden.hpp"

namespace holdfast::chat {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string wrong(const std::string& line) {
  try {
    messages_of(Json::parse(line));
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::usage);
    return error.what();
  }
  return "no error";
}

TEST(Messages, come_in_four_forms) {
  const Json plain =
      Json::parse(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])");
  const auto same = [&](const std::string& line) {
    EXPECT_EQ(messages_of(Json::parse(line)), plain) << line;
  };
  same(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "id": 1})");
  same(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})");
  same(R"({"conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})");
  same(R"({"instruction": "q", "input": "", "output": "a"})");
  same(R"({"instruction": "q", "output": "a"})");
  same(R"({"prompt": "q", "completion": "a"})");
  same(
      R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]})");
}

TEST(Messages, system_and_input) {
  const Json read =
      messages_of(Json::parse(R"({"instruction": "Add.", "input": "1+1", "output": "2", "system": "s"})"));
  EXPECT_EQ(read,
            Json::parse(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "Add.\n\n1+1"},
                                  {"role": "assistant", "content": "2"}])"));
  EXPECT_EQ(messages_of(Json::parse(R"({"conversations": [{"from": "system", "value": "s"}]})"))[0]["role"],
            "system");
  for (const char* line : {R"({"system": "s", "messages": [{"role": "user", "content": "q"}]})",
                           R"({"system": "s", "prompt": "q", "completion": "a"})",
                           R"({"system_prompt": "s", "conversations": [{"from": "human", "value": "q"}]})"})
    EXPECT_EQ(messages_of(Json::parse(line))[0]["content"], "s") << line;
  EXPECT_THAT(wrong(R"({"system": "s", "messages": [{"role": "system", "content": "t"}]})"),
              HasSubstr("and a system message"));
}

TEST(Messages, say_what_is_missing) {
  EXPECT_THAT(wrong("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(wrong("{}"), HasSubstr("it is empty"));
  EXPECT_THAT(wrong(R"({"text": "a"})"), HasSubstr("it has \"text\""));
  EXPECT_THAT(wrong(R"({"messages": []})"), HasSubstr("is empty"));
  EXPECT_THAT(wrong(R"({"messages": {}})"), HasSubstr("is no list"));
  EXPECT_THAT(wrong(R"({"messages": [{"content": "a"}]})"), HasSubstr("no \"role\""));
  EXPECT_THAT(wrong(R"({"messages": [{"role": "user", "content": 1}]})"),
              HasSubstr("neither a string nor a list"));
  EXPECT_THAT(wrong(R"({"conversations": [{"from": "narrator", "value": "a"}]})"), HasSubstr("\"narrator\""));
  EXPECT_THAT(wrong(R"({"conversations": [{"from": "human"}]})"), HasSubstr("no \"value\""));
  EXPECT_THAT(wrong(R"({"instruction": "", "output": "a"})"), HasSubstr("empty"));
  EXPECT_THAT(wrong(R"({"instruction": 1, "output": "a"})"), HasSubstr("no string"));
  EXPECT_THAT(wrong(R"({"instruction": "a", "output": "b", "history": [["c", "d"]]})"), HasSubstr("history"));
}

/// "L": learned, "-": not, of each message of role assistant.
std::string flags(const std::string& line) {
  std::string all;
  const Json messages = messages_of(Json::parse(line));
  for (const Json& message : messages)
    if (message["role"] == "assistant") all += message.value("train", true) ? 'L' : '-';
  for (const Json& message : messages)
    for (const auto& [key, value] : message.items())
      EXPECT_TRUE(key == "role" || key == "content" || key == "train") << key;
  return all;
}

TEST(Messages, answers_that_are_not_to_be_learned) {
  const auto of = [](const std::string& first, const std::string& second) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", )" +
           first + R"(}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "b", )" + second +
           "}]}";
  };
  EXPECT_EQ(flags(of(R"("weight": 0)", R"("weight": 1)")), "-L");
  EXPECT_EQ(flags(of(R"("weight": 0.0)", R"("weight": 1.0)")), "-L");
  EXPECT_EQ(flags(of(R"("train": false)", R"("train": true)")), "-L");
  EXPECT_EQ(flags(of(R"("training": false)", R"("weight": null)")), "-L");
  EXPECT_EQ(flags(of(R"("loss": false)", R"("loss": true)")), "-L");
  EXPECT_EQ(flags(of(R"("masked": true)", R"("masked": false)")), "-L");
  EXPECT_EQ(flags(of(R"("weight": 0, "train": false)", R"("weight": 1)")), "-L");
  EXPECT_EQ(flags(R"({"conversations": [{"from": "human", "value": "q", "weight": 0},
    {"from": "gpt", "value": "a", "weight": 0}, {"from": "gpt", "value": "a", "train": true}]})"),
            "-L");
  EXPECT_EQ(flags(R"({"prompt": [{"role": "user", "content": "q"}],
    "completion": [{"role": "assistant", "content": "a", "train": false}]})"),
            "-");
  for (const char* key : {R"("weight": 0.5)", R"("weight": 2)", R"("weight": "0")", R"("loss_scale": 2)",
                          R"("train_detail": [])", R"("mask": true)", R"("weight": 0, "train": true)"})
    EXPECT_THAT(wrong(of(key, R"("weight": 1)")), HasSubstr("this is no conversation")) << key;
  EXPECT_THAT(wrong(of(R"("weight": 0.5)", R"("weight": 1)")), HasSubstr("\"weight\" of a message is 0.5"));
  EXPECT_THAT(wrong(R"({"messages": [{"role": "user", "content": "q", "train": true}]})"),
              HasSubstr("a message of role \"user\" is to be learned"));
}

TEST(Messages, what_says_something_else_is_named) {
  const std::string said =
      R"("messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";
  EXPECT_THAT(wrong(R"({"prompt": "q", "chosen": "a", "rejected": "b"})"),
              AllOf(HasSubstr("preference"), HasSubstr("jq -c")));
  EXPECT_THAT(wrong("{" + said + R"(, "rejected_response": "b"})"), HasSubstr("\"rejected_response\""));
  EXPECT_THAT(wrong(R"({"prompt": "q", "completion": "a", "label": false})"), HasSubstr("good one"));
  EXPECT_THAT(wrong("{" + said + R"(, "images": ["x.png"]})"), HasSubstr("\"images\""));
  EXPECT_THAT(wrong(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
              HasSubstr("\"image\""));
  EXPECT_THAT(wrong("{" + said + R"(, "functions": [{"name": "f"}]})"), HasSubstr("\"functions\""));
  EXPECT_THAT(wrong("{" + said + R"(, "weight": 0.5})"), HasSubstr("\"weight\" of the line is 0.5"));
  EXPECT_EQ(wrong("{" + said + R"(, "weight": 1, "images": [], "label": true, "source": "x"})"), "no error");
}

TEST(Messages, what_the_template_sees_beside_them) {
  EXPECT_EQ(extra_of(Json::parse(R"({"tools": "[{\"name\": \"f\"}]"})")),
            Json::parse(R"({"tools": [{"name": "f"}]})"));
  EXPECT_THROW(extra_of(Json::parse(R"({"tools": "f"})")), Error);

  EXPECT_EQ(extra_of(Json::parse(
                R"({"messages": [], "tools": [1], "documents": null, "chat_template_kwargs": {"a": 2}})")),
            Json::parse(R"({"tools": [1], "a": 2})"));
  EXPECT_THROW(extra_of(Json::parse(R"({"chat_template_kwargs": 1})")), Error);
}

const std::vector<std::string> im_specials = {"<|im_start|>",
                                              "<|im_end|>",
                                              "<|eot_id|>",
                                              "<|start_header_id|>",
                                              "<|end_header_id|>",
                                              "</s>",
                                              "<s>",
                                              "<|end|>",
                                              "<|user|>",
                                              "<|assistant|>",
                                              "<|endoftext|>",
                                              "<end_of_turn>",
                                              "<start_of_turn>",
                                              "<|begin_of_text|>",
                                              "<｜end▁of▁sentence｜>",
                                              "<｜Assistant｜>"};

struct Learned {
  std::string text;  ///< what is learned, in brackets
  Example example;
};

Learned learn(const Template& chat, const Json& messages, const Json& extra = Json::object()) {
  const ByteTokenizer tokenizer(im_specials);
  Learned learned{{}, tokenize(messages, chat, tokenizer, extra)};
  EXPECT_EQ(learned.example.tokens.size(), learned.example.learned.size());
  bool open = false;
  for (std::size_t i = 0; i < learned.example.tokens.size(); ++i) {
    if (learned.example.learned[i] != open) learned.text += (open = !open) ? "[" : "]";
    learned.text += tokenizer.decode({&learned.example.tokens[i], 1}, true);
  }
  if (open) learned.text += "]";
  return learned;
}

std::string learned_of(const std::string& name, const Json& messages) {
  return learn(golden_template(name), messages).text;
}

Json turns(const std::vector<std::string>& said) {
  Json messages = Json::array();
  for (std::size_t i = 0; i < said.size(); ++i)
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", said[i]}});
  return messages;
}

TEST(Tokenize, answers_and_their_ends_are_learned) {
  const Json two = turns({"q", "a", "r", "b"});
  EXPECT_EQ(learned_of("chatml", two),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n"
            "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n");
  EXPECT_EQ(learned_of("llama2", two), "<s>[INST] q [/INST][ a </s>]<s>[INST] r [/INST][ b </s>]");
  EXPECT_EQ(learned_of("llama3", turns({"q", "a"})),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[a<|eot_id|>]");
  EXPECT_EQ(learned_of("gemma", turns({"q", "a"})),
            "<bos><start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n[a<end_of_turn>]\n");
  EXPECT_EQ(learned_of("mistral", two), "<s> [INST] q [/INST][ a</s>] [INST] r [/INST][ b</s>]");
  // The prompt of Zephyr ends before the line does; its end token is there again in front of the next turn's
  // name.
  EXPECT_EQ(learned_of("zephyr", turns({"q", "a"})), "<|user|>\nq</s>\n<|assistant|>\n[a</s>]\n");
}

TEST(Tokenize, an_empty_answer_teaches_its_end) {
  EXPECT_EQ(learned_of("chatml", turns({"q", ""})),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n");
}

TEST(Tokenize, what_looks_special_in_an_answer_is_text) {
  const Learned learned = learn(golden_template("chatml"), turns({"<|im_end|>", "a<|im_end|>\nb"}));
  EXPECT_EQ(learned.text,
            "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n[a<|im_end|>\nb<|im_end|>]\n");
  EXPECT_EQ(std::count_if(learned.example.tokens.begin(), learned.example.tokens.end(),
                          [](int t) { return t >= 256; }),
            4);
}

TEST(Tokenize, words_that_end_a_conversation_do_not_hide_its_turns) {
  EXPECT_EQ(learned_of("phi3", turns({"q", "a", "r", "b"})),
            "<|user|>\nq<|end|>\n<|assistant|>\n[a<|end|>]\n<|user|>\nr<|end|>\n<|assistant|>\n[b<|end|>\n<|"
            "endoftext|>]");
}

TEST(Tokenize, a_prompt_may_open_what_the_turn_does_not_have) {
  EXPECT_EQ(learned_of("deepseek_r1", turns({"q", "a"})),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜>[a<｜end▁of▁sentence｜>]");
}

TEST(Tokenize, turns_that_the_template_rewrites_are_not_learned) {
  const Json messages = turns({"q", "<think>\ns\n</think>\n\na", "r", "<think>\nt\n</think>\n\nb"});
  const Learned learned = learn(golden_template("qwen3"), messages);
  EXPECT_EQ(
      learned.text,
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
      "<|im_start|>assistant\n[<think>\nt\n</think>\n\nb<|im_end|>]\n");
  EXPECT_EQ(learned.example.rewritten, 1);
}

TEST(Tokenize, marks_of_the_template_decide) {
  const Json two = turns({"q", "a", "r", "b"});
  EXPECT_EQ(learned_of("marked", two), learned_of("chatml", two));
  const Template chat(
      "{% for m in messages %}{{ m.role }}:{% if loop.last %}{% generation %}{{ m.content }}{% endgeneration "
      "%}"
      "{% else %}{{ m.content }}{% endif %};{% endfor %}",
      {});
  EXPECT_EQ(learn(chat, two).text, "user:q;assistant:a;user:r;assistant:[b];");
}

TEST(Tokenize, calls_of_tools_are_answers) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "t?"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "now", "arguments": {}}}]},
    {"role": "tool", "content": "5"}, {"role": "assistant", "content": "five"}])");
  const Json extra = Json::parse(R"({"tools": [{"function": {"name": "now"}}]})");
  const std::string text = learn(golden_template("qwen25"), messages, extra).text;
  EXPECT_THAT(text, HasSubstr("<|im_start|>assistant\n[<tool_call>\n{\"name\": \"now\", \"arguments\": "
                              "{}}\n</tool_call><|im_end|>]\n"));
  EXPECT_THAT(text, HasSubstr("<|im_start|>assistant\n[five<|im_end|>]\n"));
}

TEST(Tokenize, what_is_not_to_be_learned_is_not) {
  Json two = turns({"q", "a", "r", "b"});
  two[1]["train"] = false;
  const std::string expected =
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
      "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n";
  EXPECT_EQ(learned_of("chatml", two), expected);
  EXPECT_EQ(learned_of("marked", two), expected) << "also where the template marks all answers";
  EXPECT_EQ(learn(golden_template("chatml"), two).example.rewritten, 0);
}

/// As Mistral publishes it: the system message stands before the last message, if that is the user's.
const char* const system_before_the_last =
    "{% for m in messages %}{% if m.role == 'user' %}[INST]{% if loop.last and messages[0].role == 'system' "
    "%}"
    "{{ messages[0].content }}\n{% endif %}{{ m.content }}[/INST]{% elif m.role == 'assistant' %}{{ "
    "m.content }};"
    "{% endif %}{% endfor %}";

TEST(Tokenize, nothing_to_learn_is_an_error) {
  const auto error_of = [](const Template& chat, const Json& messages) -> std::string {
    try {
      learn(chat, messages);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(golden_template("chatml"), turns({"q"})), HasSubstr("the assistant says nothing"));
  const Template forgetful("{% for m in messages %}{{ messages | length }}{{ m.content }}{% endfor %}", {});
  EXPECT_THAT(error_of(forgetful, turns({"q", "a", "r"})), HasSubstr("differently once the answer is there"));
  const Template forgetting(
      "{% for m in messages %}{{ '?' if m.role == 'assistant' and not loop.last else m.content }}"
      "{% endfor %}",
      {});
  EXPECT_THAT(error_of(forgetting, turns({"q", "a", "r"})),
              HasSubstr("the template changes what the assistant said"));
  Json system = turns({"q", "a"});
  system.insert(system.begin(), Json{{"role", "system"}, {"content", "Be brief."}});
  EXPECT_THAT(
      error_of(Template(system_before_the_last, {}), system),
      AllOf(HasSubstr("the template writes the system message only before an answer that is still to come"),
            HasSubstr("--chat FOLDER")));
  const Template counting("{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}", {});
  EXPECT_THAT(error_of(counting, turns({"q", "a"})), HasSubstr("differently once the answer is there"));
  Json none = turns({"q", "a"});
  none[1]["train"] = false;
  EXPECT_THAT(error_of(golden_template("chatml"), none), HasSubstr("marked as not to be learned"));
}

/// Pairs of bytes, as subwords do, may lie across the border of a turn.
class PairTokenizer : public ByteTokenizer {
 public:
  PairTokenizer() : ByteTokenizer({}) {}
  void encode_template_at(std::string_view text, std::span<const std::pair<std::size_t, std::size_t>>,
                          std::vector<Token>& out, std::vector<std::size_t>& begins) const override {
    for (std::size_t at = 0; at < text.size(); at += 2) {
      begins.push_back(at);
      out.push_back(static_cast<unsigned char>(text[at]));
    }
  }
};

TEST(Tokenize, a_token_that_reaches_into_an_answer_is_learned) {
  const Template chat(
      "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}",
      {});
  // "u1|2a|34|5": the answer is "345" and begins inside no token; with one byte more before it does.
  EXPECT_EQ(tokenize(turns({"12", "345"}), chat, PairTokenizer()).learned,
            (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(tokenize(turns({"1", "345"}), chat, PairTokenizer()).learned,
            (std::vector<bool>{false, true, true}));
}

}  // namespace
}  // namespace holdfast::chat
