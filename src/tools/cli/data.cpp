#include <memory>

#include "src/tools/cli/data_prepare.hpp"
#include "src/tools/cli/data_show.hpp"
#include "src/tools/cli/verbs.hpp"

namespace holdfast::tool {
namespace {

void add_text(CLI::App& verb, PrepareOptions& options) {
  corpus::Settings& s = options.settings;
  verb.add_option("--input", s.input, "Files and folders, also .gz and .zst")->required()->type_name("PATH");
  verb.add_option("--output", s.output, "Token file to write")->required()->type_name("FILE");
  verb.add_option("--format", options.format,
                  "auto (by name), text (a file is a document), jsonl (a line is, or an element of an "
                  "array), chat (the same as conversations), "
                  "u16, u32 (raw tokens), megatron (.bin and .idx)")
      ->type_name("FORMAT");
  verb.add_option("--text-key", s.text_key, "Where the text is in a line of JSON (text)")->type_name("KEY");
  verb.add_option("--chat", s.chat, "Folder with the chat template (the tokenizer's)")->type_name("FOLDER");
  verb.add_option("--tokenizer", s.tokenizer, "SentencePiece model, tokenizer.json, or a folder with one")
      ->type_name("PATH");
  verb.add_option("--train-vocabulary", s.train_vocabulary,
                  "Train a SentencePiece model of so many pieces instead")
      ->type_name("N");
  verb.add_option("--tokenizer-out", s.tokenizer_out,
                  "Where to keep the model (a trained one: beside the output)")
      ->type_name("FILE");
  verb.add_option("--vocabulary", s.vocabulary, "Vocabulary size of raw tokens, if there is no tokenizer")
      ->type_name("N");
  verb.add_option("--document-start", s.document_start, "Raw tokens: the one that begins a document")
      ->type_name("TOKEN");
  verb.add_flag("--no-document-end", options.no_document_end, "Put no end token behind documents");
}

void add_choice(CLI::App& verb, PrepareOptions& options) {
  corpus::Settings& s = options.settings;
  verb.add_option("--dedupe", options.dedupe, "Leave duplicates out: none, exact, near")->type_name("WHICH");
  verb.add_option("--similarity", s.similarity,
                  "Similarity from which on documents count as near duplicates (0.8)")
      ->type_name("SHARE");
  verb.add_option("--val-fraction", s.val_fraction, "Part of the text, kept apart in OUTPUT.val.EXT")
      ->type_name("FRACTION");
  verb.add_option("--split", options.split,
                  "Which part: documents (by the hash of their text), tail (the last bytes); auto is tail "
                  "for plain text")
      ->type_name("HOW");
  verb.add_option("--pack", s.pack, "Pack whole documents into rows of so many tokens")->type_name("N");
  verb.add_option("--long", options.longer,
                  "What becomes of documents longer than a row: drop (auto for conversations), truncate, cut "
                  "(auto for "
                  "all else)")
      ->type_name("HOW");
  verb.add_flag("--strict", s.strict, "Stop at the first broken line");
  verb.add_flag("--skip-bad-files", s.skip_bad_files,
                "Leave files out that give no document or are no text, instead of stopping");
  verb.add_option("--workers", s.workers, "Threads (one per core)")->type_name("N");
  verb.add_flag("--keep-work", s.keep_work, "Leave OUTPUT.work behind");
  verb.add_flag("--no-space-check", options.no_space_check, "Begin even if the disk looks too small");
  const char* const hidden = "";  // for jobs
  verb.add_flag("--plan-json", options.plan_json)->group(hidden);
  verb.add_option("--stage", options.stage)->group(hidden);
  verb.add_option("--task", options.task)->group(hidden);
}

}  // namespace

void add_data(CLI::App& app, int& exit_code) {
  CLI::App* data = app.add_subcommand("data", "Prepare and look at training data")->require_subcommand(1);
  data->footer("'holdfast data submit' is 'prepare' as jobs of a cluster; see its --help.");

  const auto prepare_options = std::make_shared<PrepareOptions>();
  CLI::App* prepare = data->add_subcommand("prepare", "Turn text, conversations or tokens into a token file");
  add_text(*prepare, *prepare_options);
  add_choice(*prepare, *prepare_options);
  prepare->callback([prepare_options, &exit_code] {
    run_prepare(*prepare_options);
    exit_code = 0;
  });

  const auto show_options = std::make_shared<ShowOptions>();
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
