#include "src/tool/verbs.hpp"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "src/base/log.hpp"
#include "src/data/token_file.hpp"
#include "src/tool/data_prepare.hpp"

namespace holdfast::tool {
namespace {

void run_prepare(const PrepareOptions& options) {
  const PrepareReport report = prepare(options);
  if (report.replaced > 0) {
    log::warn("{} malformed UTF-8 sequences became U+FFFD (is this text in another encoding?)",
              report.replaced);
  }
  if (report.unknown > 0)
    log::warn("{} tokens are <unk>: this tokenizer cannot spell all of the text", report.unknown);
  fmt::print("{}: {} tokens, vocabulary {}, identity {}\n", options.output.string(), report.tokens,
             report.vocabulary, report.identity);
  if (!report.validation.empty())
    fmt::print("{}: {} tokens, identity {}\n", report.validation.string(), report.val_tokens,
               report.val_identity);
  if (!report.tokenizer.empty()) fmt::print("{}: tokenizer\n", report.tokenizer.string());
}

struct ShowOptions {
  std::string file;
  bool json = false, verify = false;
};

void run_show(const ShowOptions& options) {
  const data::TokenFile file = data::TokenFile::open(options.file, 0);
  if (options.verify) file.verify();
  const data::TokenHeader& header = file.header();
  const bool known = header.tokenizer != data::Hash128{};
  if (options.json) {
    const nlohmann::ordered_json report = {
        {"schema_version", 1},
        {"tokens", file.size()},
        {"vocabulary", file.vocabulary()},
        {"bytes_per_token", header.bytes_per_token},
        {"identity", file.identity()},
        {"tokenizer", known ? nlohmann::ordered_json(data::hex(header.tokenizer)) : nullptr},
        {"verified", options.verify}};
    fmt::print("{}\n", report.dump(2));
    return;
  }
  fmt::print(
      "tokens           {}\nvocabulary       {}\nbytes per token  {}\nidentity         {}{}\ntokenizer       "
      " {}\n",
      file.size(), file.vocabulary(), header.bytes_per_token, file.identity(),
      options.verify ? " (verified)" : "", known ? data::hex(header.tokenizer) : "unknown");
}

}  // namespace

void add_data(CLI::App& app, int& exit_code) {
  CLI::App* data = app.add_subcommand("data", "Prepare and look at training data")->require_subcommand(1);

  auto prepare_options = std::make_shared<PrepareOptions>();
  CLI::App* prepare = data->add_subcommand("prepare", "Turn plain text into a token file");
  prepare->add_option("--input", prepare_options->input, "Text files and folders; a file is a document")
      ->required()
      ->type_name("PATH");
  prepare->add_option("--output", prepare_options->output, "Token file to write")
      ->required()
      ->type_name("FILE");
  prepare->add_option("--tokenizer", prepare_options->tokenizer, "SentencePiece model to use")
      ->type_name("FILE");
  prepare
      ->add_option("--train-vocabulary", prepare_options->train_vocabulary,
                   "Train a model of so many pieces instead")
      ->type_name("N");
  prepare
      ->add_option("--tokenizer-out", prepare_options->tokenizer_out,
                   "Where to keep the model (a trained one: beside the output)")
      ->type_name("FILE");
  prepare
      ->add_option("--val-fraction", prepare_options->val_fraction,
                   "Last part of the text, kept apart in OUTPUT.val.EXT")
      ->type_name("FRACTION");
  prepare->callback([prepare_options, &exit_code] {
    run_prepare(*prepare_options);
    exit_code = 0;
  });

  auto show_options = std::make_shared<ShowOptions>();
  CLI::App* show = data->add_subcommand("show", "Print what a token file holds");
  show->add_option("FILE", show_options->file, "Token file")->required();
  show->add_flag("--verify", show_options->verify, "Read all tokens and check their hash");
  show->add_flag("--json", show_options->json, "Print JSON");
  show->callback([show_options, &exit_code] {
    run_show(*show_options);
    exit_code = 0;
  });
}

}  // namespace holdfast::tool
