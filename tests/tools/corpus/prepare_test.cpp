#include "src/tools/corpus/prepare.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "src/base/strict_json.hpp"
#include "src/tools/corpus/card.hpp"
#include "tests/tools/corpus/corpus_fixture.hpp"

namespace holdfast::corpus {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string json_line(const std::string& text) { return nlohmann::json{{"text", text}}.dump() + "\n"; }

/// `lines` documents of about 100 bytes; every seventh repeats an earlier one.
std::string many_lines(int lines, int seed) {
  std::string all;
  for (int i = 0; i < lines; ++i) {
    const int number = i % 7 == 6 ? i / 2 : i;
    all += json_line(fmt::format("document {} of {}: {}", number, seed, std::string(60 + number % 50, 'x')));
  }
  return all;
}

TEST_F(CorpusTest, text_and_json_lines_by_their_names) {
  put("b.jsonl", R"({"text": "one \u00e9\n"})"
                 "\n\n"
                 R"({"id": 1, "text": "two"})");
  put("a.txt", "text\nof a file\n");
  put("part-00000", "no end in its name");
  put(".hidden", "no"), put("_SUCCESS", ""), put("a.txt.crc", "no");
  const auto card = run();
  EXPECT_THAT(documents(),
              ElementsAre("<text\nof a file\n>", "<one \u00e9\n>", "<two>", "<no end in its name>"));
  EXPECT_EQ(card["read"]["documents"], 4);
  EXPECT_EQ(card["output"]["documents"], 4);
  EXPECT_EQ(card["inputs"].size(), 3u);
  EXPECT_EQ(card["inputs"][1]["xxh3_128"],
            data::hex(data::hash_bytes(files::read_text(folder_ / "in/b.jsonl"))));
  EXPECT_EQ(card, nlohmann::ordered_json::parse(files::read_text(card_path(settings_.output))));
  EXPECT_FALSE(fs::exists(work_path(settings_.output)));
}

TEST_F(CorpusTest, no_end_token_when_not_wanted) {
  put("a.txt", "a");
  settings_.document_end = false;
  run();
  EXPECT_THAT(documents(), ElementsAre("<a"));
}

TEST_F(CorpusTest, same_bytes_whatever_the_workers) {
  put("big.jsonl", many_lines(30'000, 1));  // more than 1 MiB: several parts
  put("more.jsonl", many_lines(300, 2));
  put("packed.jsonl.gz", gzipped(many_lines(3000, 3)));
  put("text.txt", "a text\nof two lines");
  settings_.dedupe = Dedupe::exact;
  settings_.val_fraction = 0.05;
  std::vector<std::string> all;
  for (const int workers : {1, 2, 7}) {
    settings_.workers = workers;
    const auto card = run();
    EXPECT_GT(card["removed"]["exact"], 2'000);
    EXPECT_EQ(card["kept"],
              card["output"]["documents"].get<int>() + card["validation"]["documents"].get<int>());
    all.push_back(output() + files::read_text(validation_path(settings_.output)) +
                  files::read_text(card_path(settings_.output)));
  }
  EXPECT_TRUE(all[0] == all[1]);
  EXPECT_TRUE(all[0] == all[2]);
}

TEST_F(CorpusTest, parts_see_every_line_once) {
  const auto path = put("big.jsonl", many_lines(30'000, 1));
  const auto plan = plan_of(settings_, around_);
  ASSERT_GT(plan.parts.size(), 2u);
  run();
  const auto cut = documents();
  settings_.input = {put("../whole.jsonl.gz", gzipped(files::read_text(path)))};
  EXPECT_EQ(plan_of(settings_, around_).parts.size(), 1u);
  run();
  EXPECT_TRUE(cut == documents());
}

TEST_F(CorpusTest, a_killed_run_goes_on_where_it_was) {
  put("big.jsonl", many_lines(30'000, 1));
  settings_.dedupe = Dedupe::exact;
  run();
  const std::string whole = output();
  fs::remove(settings_.output);
  const pid_t child = ::fork();
  if (child == 0) {
    settings_.workers = 1;
    encoded_ = 0;
    die_at_ = 15'000;
    run();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(settings_.output));
  const auto plan = plan_of(settings_, around_);
  EXPECT_TRUE(fs::exists(plan.work.result(0)));
  encoded_ = 0;
  const auto card = run();
  EXPECT_TRUE(output() == whole);
  EXPECT_LT(encoded_.load(), card["kept"].get<int>()) << "the part that was done is not done again";
}

TEST_F(CorpusTest, stages_in_tasks_are_the_same_run) {
  put("big.jsonl", many_lines(30'000, 1));
  settings_.dedupe = Dedupe::near;
  run();
  const std::string whole = output();
  fs::remove(settings_.output);
  for (const Stage stage : stages_of(settings_)) {
    const std::size_t tasks = by_parts(stage) ? 3 : 1;
    for (std::size_t task = tasks; task-- > 0;) {
      Plan plan = plan_of(settings_, around_);
      run_stage(plan, stage, {task, tasks}, around_);
    }
  }
  EXPECT_TRUE(output() == whole);
}

TEST_F(CorpusTest, other_settings_start_anew) {
  put("a.txt", "text");
  Plan plan = plan_of(settings_, around_);
  run_stage(plan, Stage::tokens, {}, around_);
  const fs::path first = plan.work.path;
  EXPECT_TRUE(fs::exists(plan.work.result(0)));
  settings_.document_end = false;
  EXPECT_NE(plan_of(settings_, around_).work.path, first);
  run();
  EXPECT_THAT(documents(), ElementsAre("<text"));
  EXPECT_FALSE(fs::exists(first)) << "what nobody asked for in the end is removed too";
  put("a.txt", "other");
  settings_.document_end = true;
  EXPECT_NE(plan_of(settings_, around_).work.path, first) << "the input has changed";
}

TEST_F(CorpusTest, broken_lines_are_counted_and_listed) {
  put("a.jsonl", R"({"text": "good"})"
                 "\n"
                 R"({"text": "half)"
                 "\n"
                 R"({"txt": "x"})"
                 "\n"
                 R"({"text": 7})"
                 "\n"
                 R"(["text"])"
                 "\n"
                 R"({"text": "good too", "more": {"a": [1, 2})"
                 "\n"
                 R"({"text": "\ud80"})"
                 "\n"
                 R"({"text": ""})"
                 "\n   \n"
                 R"({"text": "last"})");
  const auto card = run();
  EXPECT_THAT(documents(), ElementsAre("<good>", "<last>"));
  EXPECT_EQ(card["read"]["broken"], 6);
  EXPECT_EQ(card["read"]["empty"], 1);
  std::vector<std::string> said;
  for (const auto& line : card["broken_lines"])
    said.push_back(fmt::format("{}: {}", line["line"].get<int>(), line["why"].get<std::string>()));
  EXPECT_THAT(said,
              ElementsAre("2: it is no JSON", "3: it has no key \"text\"", "4: \"text\" is not a string",
                          "5: it is no JSON object", "6: it is no JSON", "7: a string in it is malformed"));
  settings_.strict = true;
  EXPECT_THAT(refusal(),
              testing::MatchesRegex("line 2 of .*a.jsonl is broken \\(it is no JSON\\).*--strict.*"));
}

TEST_F(CorpusTest, broken_lines_have_their_number_in_the_file) {
  std::string text = many_lines(30'000, 1);
  const std::size_t line_25000 = [&] {
    std::size_t at = 0;
    for (int i = 1; i < 25'000; ++i) at = text.find('\n', at) + 1;
    return at;
  }();
  text[line_25000] = '!';
  put("a.jsonl", text);
  EXPECT_EQ(run()["broken_lines"][0]["line"], 25'000);
  settings_.strict = true;
  EXPECT_THAT(refusal(), HasSubstr("line 25000 of "));
}

TEST_F(CorpusTest, malformed_utf8_is_repaired_and_counted) {
  put("a.jsonl", "{\"text\": \"caf\xE9\"}\n");
  put("b.txt", "na\xEFve");
  EXPECT_EQ(run()["read"]["repaired"], 2);
  EXPECT_THAT(documents(), ElementsAre("<caf\uFFFD>", "<na\uFFFDve>"));
}

TEST_F(CorpusTest, an_array_of_json_is_read_by_its_elements) {
  put("a.json", "[\n  {\"text\": \"x\"},\n  {\n    \"text\": \"y\",\n    \"id\": 1\n  },\n  1\n]\n");
  put("b.jsonl", json_line("z"));
  const auto card = run();
  EXPECT_THAT(documents(), ElementsAre("<x>", "<y>", "<z>"));
  EXPECT_EQ(card["broken_lines"][0]["line"], 3);
  std::string big = "[";
  for (int i = 0; i < 30'000; ++i)
    big += (i > 0 ? ",\n" : "") + json_line(fmt::format("document {} {}", i, std::string(80, 'x')));
  put("a.json", big + "]");
  ASSERT_GT(big.size(), std::size_t{2} << 20);
  run();
  EXPECT_EQ(documents().size(), 30'001u) << "whatever its size, it is one part";
  put("a.json", big);
  EXPECT_THAT(refusal(), HasSubstr("cut off"));
}

TEST_F(CorpusTest, a_file_without_a_document_ends_the_preparation) {
  put("a.jsonl", json_line("good"));
  put("b.jsonl", "{\"txt\": \"x\"}\n{\"txt\": \"y\"}\n");
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("no document comes from"),
                                        HasSubstr("b.jsonl (2 lines; line 1: it "
                                                  "has no key"),
                                        HasSubstr("--text-key"), HasSubstr("--skip-bad-files")));
  put("b.jsonl", "{\n  \"text\": \"x\"\n}\n");
  EXPECT_THAT(refusal(), HasSubstr("jq -c"));
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += "{\"txt\": 1}\n";
  put("b.jsonl", many);
  EXPECT_THAT(refusal(), HasSubstr("b.jsonl (200000 lines; line 1: it has no key"))
      << "also where it was cut";
  settings_.skip_bad_files = true;
  const auto card = run();
  EXPECT_THAT(documents(), ElementsAre("<good>"));
  EXPECT_EQ(card["read"]["broken"], 200'000);
  EXPECT_EQ(card["settings"]["skip_bad_files"], true);
  settings_.skip_bad_files = false;
  put("b.jsonl", "\n\n"), put("c.jsonl", "");
  EXPECT_EQ(refusal(), "accepted") << "files of nothing say nothing";
}

TEST_F(CorpusTest, files_that_are_no_text_are_refused) {
  put("a.txt", "text");
  put("b.png", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16));
  EXPECT_THAT(refusal(), HasSubstr("b.png (it has bytes of 0: it is no text, or in UTF-16)"));
  settings_.skip_bad_files = true;
  for (const bool strict : {false, true}) {
    settings_.strict = strict;
    EXPECT_EQ(run()["broken_lines"][0]["line"], 0) << "it is left out, and ends nothing";
    EXPECT_THAT(documents(), ElementsAre("<text>"));
  }
}

TEST_F(CorpusTest, documents_longer_than_a_row) {
  put("a.jsonl", json_line(std::string(100, 'a')) + json_line("bb") + json_line(std::string(61, 'c')));
  const auto rows = [&](Long longer) {
    settings_.pack = 64;
    settings_.longer = longer;
    const auto card = run();
    EXPECT_EQ(card["settings"]["long"], name_of(longer == Long::automatic ? Long::cut : longer));
    EXPECT_EQ(card["output"]["longer"], 1);
    std::vector<std::string> all = documents();
    std::erase_if(all,
                  [](const std::string& text) { return text.find_first_not_of('>') == std::string::npos; });
    return all;
  };
  const std::string a = "<" + std::string(63, 'a'), rest = std::string(37, 'a') + ">", b = "<bb>",
                    c = "<" + std::string(61, 'c') + ">";
  EXPECT_THAT(rows(Long::automatic), testing::UnorderedElementsAre(a, rest, b, c));
  EXPECT_THAT(rows(Long::cut), testing::UnorderedElementsAre(a, rest, b, c));
  EXPECT_THAT(rows(Long::truncate), testing::UnorderedElementsAre(a, b, c));
  EXPECT_THAT(rows(Long::drop), testing::UnorderedElementsAre(b, c));
  put("a.jsonl", json_line(std::string(100, 'a')));
  EXPECT_THAT(refusal(),
              testing::AllOf(HasSubstr("1 are longer than a row of 64"), HasSubstr("--long truncate")));
  settings_.pack = 0;
  EXPECT_THAT(refusal(), HasSubstr("--long is for packed rows"));
}

TEST_F(CorpusTest, nothing_is_left) {
  put("a.json", "{\"txt\": 1}");
  EXPECT_THAT(refusal(), HasSubstr("--text-key"));
  settings_.skip_bad_files = true;
  EXPECT_THAT(refusal(), HasSubstr("no document is left"));
  put("a.json", "{\"text\": \"\"}");
  EXPECT_THAT(refusal(), HasSubstr("no document is left"));
  put("a.json", "");
  EXPECT_THAT(refusal(), HasSubstr("every input is empty"));
  EXPECT_FALSE(fs::exists(settings_.output));
}

TEST_F(CorpusTest, held_out_documents_do_not_depend_on_order) {
  std::string forward, backward;
  for (int i = 0; i < 400; ++i) {
    forward += json_line(std::to_string(i));
    backward += json_line(std::to_string(399 - i));
  }
  settings_.val_fraction = 0.25;
  put("a.jsonl", forward);
  run();
  auto first = documents(validation_path(settings_.output));
  put("a.jsonl", backward);
  run();
  auto second = documents(validation_path(settings_.output));
  EXPECT_NEAR(static_cast<double>(first.size()), 100, 30);
  std::reverse(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.size() + documents().size(), 400u);
}

TEST_F(CorpusTest, held_out_tail_of_lines_and_texts) {
  settings_.val_fraction = 0.5;
  settings_.split = Split::tail;
  put("a.jsonl", json_line("1") + json_line("2") + json_line("3") + json_line("4"));
  run();
  EXPECT_THAT(documents(), ElementsAre("<1>", "<2>"));
  EXPECT_THAT(documents(validation_path(settings_.output)), ElementsAre("<3>", "<4>"));

  fs::remove(folder_ / "in/a.jsonl");
  settings_.split = Split::automatic;
  for (const bool packed : {false, true}) {
    const std::string text = "one\ntwo\nthree\nfour\n";
    packed ? put("a.txt.gz", gzipped(text)) : put("a.txt", text);
    run();
    EXPECT_THAT(documents(), ElementsAre("<one\ntwo\nthree")) << "the text does not end there";
    EXPECT_THAT(documents(validation_path(settings_.output)), ElementsAre("<four\n>"));
    fs::remove(folder_ / "in/a.txt");
  }
}

TEST_F(CorpusTest, packed_rows_hold_whole_documents) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += json_line(std::string(1 + i * 7 % 60, 'a'));
  put("a.jsonl", lines);
  settings_.pack = 64;
  const auto card = run();
  const data::TokenFile file = data::TokenFile::open(settings_.output);
  EXPECT_EQ(file.row(), 64);
  EXPECT_EQ(file.size() % 64, 0);
  EXPECT_EQ(card["output"]["documents"], 200);
  EXPECT_EQ(card["output"]["tokens"].get<int>() + card["output"]["padding"].get<int>(), file.size());
  EXPECT_GT(card["output"]["fill"], 0.9);
  int whole = 0;
  for (const std::string& document : documents())
    whole += document.front() == '<' && document.back() == '>' ? 1 : 0;
  EXPECT_EQ(whole, 200);
  EXPECT_EQ(std::ranges::count(file.learned(0, file.size()), false), card["output"]["padding"]);
}

TEST_F(CorpusTest, conversations_and_what_is_learned_of_them) {
  put("../model/chat_template.jinja",
      "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  put("../model/tokenizer_config.json", "{}");
  put("a.jsonl",
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]})"
      "\n"
      R"({"instruction": "i", "output": "o"})"
      "\n"
      R"({"text": "no conversation"})"
      "\n"
      R"({"messages": [{"role": "user", "content": "nothing to learn"}]})"
      "\n" +
          std::string(200'000, '['));
  settings_.format = Format::chat;
  settings_.chat = folder_ / "model";
  settings_.dedupe = Dedupe::exact;
  const auto card = run();
  EXPECT_THAT(documents(), ElementsAre("[user]q;[assistant]yes;", "[user]i;[assistant]o;"));
  EXPECT_EQ(card["read"]["broken"], 3);
  EXPECT_EQ(card["broken_lines"][2]["line"], 5) << card["broken_lines"].dump();
  const data::TokenFile file = data::TokenFile::open(settings_.output);
  std::string learned;
  for (const bool is : file.learned(0, file.size())) learned += is ? 'L' : '.';
  EXPECT_TRUE(learned.starts_with("...................LLL")) << learned;
  settings_.pack = 16;
  EXPECT_THAT(refusal(), HasSubstr("2 are longer than a row of 16"));
  settings_.pack = 21;
  EXPECT_EQ(run()["output"]["longer"], 1);
  EXPECT_THAT(documents(), ElementsAre("[user]i;[assistant]o;"))
      << "its answer is not learned without its question";
  settings_.longer = Long::truncate;
  run();
  EXPECT_THAT(documents(), testing::Contains("[user]q;[assistant]ye"));
  settings_.longer = Long::automatic;
  settings_.pack = 64;
  run();
  std::string packed;
  const data::TokenFile rows = data::TokenFile::open(settings_.output);
  for (const bool is : rows.learned(0, file.size())) packed += is ? 'L' : '.';
  EXPECT_EQ(packed, learned) << "the mask goes where its tokens go";
}

TEST_F(CorpusTest, numbers_of_a_conversation_that_nobody_reads) {
  put("../model/chat_template.jinja",
      "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  const auto line = [](const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "NaN 1e400"}, {"role": "assistant", "content": "b")" +
           more;
  };
  put("a.jsonl", line("}], \"h\": 1267650600228229401496703205376}\n") + line("}], \"h\": NaN}\n") +
                     line("}], \"h\": [1e400, -Infinity]}\n") + line("}], \"h\": \"\\ud800\"}\n") +
                     line(", \"id\": 1267650600228229401496703205376}]}\n"));
  settings_.format = Format::chat;
  settings_.chat = folder_ / "model";
  const auto card = run();
  EXPECT_EQ(documents(), std::vector<std::string>(4, "[user]NaN 1e400;[assistant]b;"));
  EXPECT_EQ(card["broken_lines"][0]["why"], "a number in its messages does not fit into 64 bits");
}

/// What goes with the messages to the encoder is one level deeper than the line that was read.
TEST_F(CorpusTest, a_conversation_whose_tools_nest_too_deeply_is_a_broken_line) {
  put("../model/chat_template.jinja", "{% for m in messages %}{{ m.content }};{% endfor %}");
  const auto line = [](int deep) {
    return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": )" +
           std::string(deep, '[') + std::string(deep, ']') + "}\n";
  };
  put("a.jsonl", line(3) + line(deepest_json) + line(deepest_json + 1));
  settings_.format = Format::chat;
  settings_.chat = folder_ / "model";
  const auto card = run();
  EXPECT_EQ(documents().size(), 1u);
  EXPECT_EQ(card["broken_lines"][0]["why"], "its JSON is nested too deeply");
}

TEST_F(CorpusTest, near_duplicates_go) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("word{} ", i * i % 1009);
  std::string other = text;
  other.replace(other.find("word100"), 4, "Wort");
  put("a.jsonl",
      json_line(text) + json_line("something else of a few words, which stays") + json_line(other));
  settings_.dedupe = Dedupe::near;
  const auto card = run();
  EXPECT_EQ(card["removed"]["near"], 1);
  EXPECT_EQ(documents().size(), 2u);
}

TEST_F(CorpusTest, a_corpus_that_does_not_fit_is_refused_before_work) {
  put("a.txt", std::string(100'000, 'a'));
  around_.free_bytes = [](const auto&) { return std::uint64_t{10'000}; };
  EXPECT_THAT(refusal(Exit::runtime), HasSubstr("do not fit on the disk"));
  EXPECT_FALSE(fs::exists(work_path(settings_.output)));
  settings_.check_space = false;
  EXPECT_EQ(refusal(), "accepted");
  settings_.check_space = true;
  fs::remove(folder_ / "in/a.txt");
  put("a.txt.zst", zstandard(std::string(10, 'a')));
  const auto bytes = fs::file_size(folder_ / "in/a.txt.zst");
  // Two bytes a token, twice: plain text of so many bytes would fit.
  around_.free_bytes = [&](const auto&) { return std::uint64_t{bytes}; };
  EXPECT_THAT(refusal(Exit::runtime), HasSubstr("do not fit on the disk"));
}

TEST_F(CorpusTest, a_disk_that_fills_up_leaves_no_half_outputs) {
  put("a.txt", std::string(100'000, 'a'));
  const auto plan = plan_of(settings_, around_);
  // Once the parts are done, no file may become as large as all of them.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  around_.watch.check = [&] {
    const rlimit limit{150'000, before.rlim_max};
    if (fs::exists(plan.work.result(0))) ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  EXPECT_THAT(refusal(Exit::runtime), HasSubstr("File too large"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  around_.watch.check = nullptr;
  EXPECT_FALSE(fs::exists(settings_.output));
  EXPECT_FALSE(fs::exists(card_path(settings_.output)));
  EXPECT_TRUE(fs::exists(plan.work.result(0))) << "what was done is kept";
  EXPECT_EQ(refusal(), "accepted") << "there is room again";
}

TEST_F(CorpusTest, nobody_elses_work_is_taken) {
  put("a.txt", "some text\n");
  const fs::path work = settings_.output.string() + ".work";
  fs::create_directory(folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", work);
  EXPECT_THAT(refusal(Exit::runtime), HasSubstr("cannot use the folder " + work.string()));
  EXPECT_TRUE(fs::is_empty(folder_ / "elsewhere"));
  fs::remove(work);
  if (::geteuid() == 0) {
    fs::create_directory(work);
    ASSERT_EQ(::chown(work.c_str(), 61001, 0), 0);
    EXPECT_THAT(refusal(Exit::runtime), HasSubstr("another user's, of the number 61001"));
    fs::remove(work);
  }
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(CorpusTest, an_interrupted_run_stops_and_goes_on_later) {
  put("big.jsonl", many_lines(30'000, 1));
  struct Interrupted {};
  around_.watch.check = [] { throw Interrupted(); };
  EXPECT_THROW(run(), Interrupted);
  EXPECT_FALSE(fs::exists(settings_.output));
  around_.watch.check = nullptr;
  run();
  EXPECT_EQ(documents().size(), 30'000u);
}

TEST_F(CorpusTest, refused_inputs) {
  EXPECT_THAT(refusal(), HasSubstr("every input is empty"));
  put("a.parquet", "PAR1");
  EXPECT_THAT(refusal(), HasSubstr(".parquet cannot be read"));
  settings_.input = {folder_ / "none"};
  EXPECT_THAT(refusal(), HasSubstr("no such file"));
  settings_.input = {"/dev/null"};
  EXPECT_THAT(refusal(), HasSubstr("neither a regular file nor a folder"));
  settings_.input = {settings_.output};
  put("../tokens.bin", "x");
  EXPECT_THAT(refusal(), HasSubstr("also an output"));
}

TEST_F(CorpusTest, settings_that_contradict_each_other) {
  put("a.txt", "some text\n");
  const auto with = [&](auto change) {
    const Settings saved = settings_;
    change(settings_);
    const std::string said = refusal();
    settings_ = saved;
    return said;
  };
  EXPECT_THAT(with([](Settings& s) { s.tokenizer.clear(); }), HasSubstr("exactly one of"));
  EXPECT_THAT(with([](Settings& s) { s.train_vocabulary = 9; }), HasSubstr("exactly one of"));
  EXPECT_THAT(with([](Settings& s) { s.val_fraction = 1; }), HasSubstr("--val-fraction"));
  EXPECT_THAT(with([](Settings& s) { s.val_fraction = 1e-9; }), HasSubstr("no text is left for validation"));
  EXPECT_THAT(with([](Settings& s) { s.similarity = 0; }), HasSubstr("--similarity"));
  EXPECT_THAT(with([](Settings& s) { s.pack = 1; }), HasSubstr("--pack"));
  EXPECT_THAT(with([](Settings& s) { s.vocabulary = 7; }), HasSubstr("the input is text"));
  EXPECT_THAT(with([](Settings& s) { s.chat = "x"; }), HasSubstr("--format chat"));
  EXPECT_THAT(with([this](Settings& s) { s.output = folder_ / "none/x"; }), HasSubstr("cannot write"));
  EXPECT_THAT(with([this](Settings& s) { s.output = folder_; }), HasSubstr("cannot write"));
}

}  // namespace
}  // namespace holdfast::corpus
