#include <iostream>
#include <memory>

#include "src/base/printable.hpp"
#include "src/tools/cli/eval.hpp"
#include "src/tools/cli/generate.hpp"
#include "src/tools/cli/named_run.hpp"
#include "src/tools/cli/verbs.hpp"

namespace holdfast::tool {

namespace {

void add_model(CLI::App& verb, ModelOrder& model) {
  verb.add_option("path", model.path,
                  "A run (its directory, its name in runs/, or its job's id), a checkpoint, a Hugging Face "
                  "folder, or a PEFT folder")
      ->transform(with_run_found)
      ->required()
      ->type_name("PATH");
  verb.add_option("--adapters", model.adapters, "LoRA adapters to add: a PEFT folder, a checkpoint or a run")
      ->type_name("PATH");
  verb.add_option("--base", model.base,
                  "Where PATH holds adapters: the weights they belong to, instead of those that they name")
      ->type_name("PATH");
}

CLI::Validator types() { return CLI::IsMember({"fp32", "bf16"}); }

void add_input(CLI::App& verb, GenerateOrder& o) {
  verb.add_option("--prompt", o.prompts, "A text to continue; repeatable")
      ->type_name("TEXT")
      ->take_all()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--file", o.file,
                  "A file with a prompt a line; in *.jsonl {\"prompt\": TEXT}, or with --chat a conversation")
      ->type_name("FILE");
  verb.add_flag("--chat", o.chat, "Prompts are messages of a user, for the model's chat template");
  verb.add_option("--system", o.system, "With --chat: the system message")->type_name("TEXT");
  verb.add_option(
          "--tokenizer", o.tokenizer,
          "Folder, tokenizer.json or SentencePiece model (default: the one beside the model, or the one "
          "that made the run's tokens)")
      ->type_name("PATH");
}

void add_writing(CLI::App& verb, GenerateOrder& o) {
  verb.add_option("--max-tokens", o.max_tokens, "Longest answer, in tokens (256)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  verb.add_option("--temperature", o.sampling.temperature,
                  "0: always the most likely token (default); 1: by the model's probabilities")
      ->type_name("T");
  verb.add_option("--top-k", o.sampling.top_k, "Sample from the K most likely tokens; 0: from all")
      ->type_name("K");
  verb.add_option("--top-p", o.sampling.top_p,
                  "Sample from the most likely tokens that together have probability P (1)")
      ->type_name("P");
  verb.add_option("--seed", o.sampling.seed, "Seed of the sampling (1)")->type_name("N");
  verb.add_option("--dtype", o.dtype, "Weights and arithmetic: fp32 (default) or bf16")
      ->type_name("TYPE")
      ->check(types());
  verb.add_option("--batch", o.batch, "Texts at a time (8); they do not depend on it")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  verb.add_flag("--json", o.json, "Print a line of JSON for each prompt: texts, tokens, and why it ended");
}

void add_generate(CLI::App& app, int& exit_code) {
  const auto order = std::make_shared<GenerateOrder>();
  CLI::App* verb = app.add_subcommand("generate", "Generate text with a model: continue texts, or answer");
  add_model(*verb, order->model);
  add_input(*verb, *order);
  add_writing(*verb, *order);
  verb->footer(
      "Without prompts, each line of standard input is a prompt; with --chat all lines are one conversation. "
      "Runs on this machine's CPUs.");
  verb->callback([order, &exit_code] {
    write_data_from_now_on();
    exit_code = generate(*order, std::cin, std::cout);
  });
}

void add_eval(CLI::App& app, int& exit_code) {
  const auto order = std::make_shared<EvalOrder>();
  CLI::App* verb = app.add_subcommand("eval", "Measure the loss and perplexity of a model on a token file");
  add_model(*verb, order->model);
  verb->add_option("--tokens", order->tokens, "Token file, made by data prepare")
      ->required()
      ->type_name("FILE");
  verb->add_option(
          "--sequence", order->sequence,
          "Tokens of a sample (default: the length of the file's rows, else the run's, else up to 2048)")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30));
  verb->add_option("--samples", order->samples,
                   "How many samples, from all over the file, always the same ones (default: all)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 62));
  verb->add_option("--micro-batch", order->micro_batch,
                   "Samples computed together (default: the run's, else 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--dtype", order->dtype,
                   "Weights and arithmetic: fp32 or bf16 (default: the run's, else fp32)")
      ->type_name("TYPE")
      ->check(types());
  verb->add_flag("--json", order->json, "Print JSON");
  verb->footer(
      "With a run's data.validation and as many samples as its [eval] has, this is its held-out loss to the "
      "last bit, if the run computes on CPUs, without 8-bit products and without an 8- or 4-bit base. "
      "Runs on this machine's CPUs.");
  verb->callback([order, &exit_code] { exit_code = evaluate(*order, std::cout); });
}

}  // namespace

void add_model_verbs(CLI::App& app, int& exit_code) {
  add_generate(app, exit_code);
  add_eval(app, exit_code);
}

}  // namespace holdfast::tool
