#include "src/tools/corpus/plan.hpp"

#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/units.hpp"

namespace holdfast::corpus {
namespace fs = std::filesystem;
namespace {

constexpr int work_version = 2;  ///< grows when the files in the work folder change

/// Before minutes of work, not after.
void expect_writable(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  const bool blocked = fs::is_directory(path, error);
  if (blocked || ::access(folder.c_str(), W_OK | X_OK) != 0)
    throw Error(Exit::usage, "cannot write " + path.string(),
                blocked ? "it is a folder" : std::strerror(errno), "Choose another path?");
}

Split decided(Split asked, const std::vector<Input>& inputs) {
  if (asked != Split::automatic) return asked;
  const bool many = std::any_of(inputs.begin(), inputs.end(), [](const Input& input) {
    return input.format != Format::text && input.format != Format::u16 && input.format != Format::u32;
  });
  return many ? Split::documents : Split::tail;
}

std::string hash_if_there(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? data::hex(data::hash_bytes(files::read_text(path))) : "";
}

/// All that the result of a part depends on.
std::string key_of(const Plan& plan) {
  const Settings& s = plan.settings;
  nlohmann::json key = {{"work", work_version},
                        {"text_key", s.text_key},
                        {"train_vocabulary", s.train_vocabulary},
                        {"vocabulary", s.vocabulary},
                        {"document_start", s.document_start.value_or(-1)},
                        {"document_end", s.document_end},
                        {"dedupe", name_of(s.dedupe)},
                        {"similarity", s.similarity},
                        {"val_fraction", s.val_fraction},
                        {"split", name_of(s.split)},
                        {"strict", s.strict}};
  if (plan.tokenizer)
    key["tokenizer"] = {data::hex(plan.tokenizer->identity()), plan.tokenizer->document_start().value_or(-1),
                        plan.tokenizer->document_end().value_or(-1)};
  if (s.format == Format::chat)
    for (const char* name :
         {"chat_template.jinja", "chat_template.json", "tokenizer_config.json", "special_tokens_map.json",
          "added_tokens.json", "additional_chat_templates/tool_use.jinja"})
      key["chat"].push_back(hash_if_there(plan.chat_folder() / name));
  for (const Input& input : plan.inputs)
    key["inputs"].push_back({input.path.string(), input.bytes, input.changed_ns, name_of(input.format)});
  return data::hex(data::hash_bytes(key.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

}  // namespace

std::int64_t Plan::vocabulary() const {
  return tokenizer ? std::int64_t{tokenizer->vocabulary()} : settings.vocabulary;
}
data::Hash128 Plan::tokenizer_identity() const { return tokenizer ? tokenizer->identity() : data::Hash128{}; }

fs::path Plan::chat_folder() const {
  if (!settings.chat.empty()) return settings.chat;
  std::error_code error;
  return fs::is_directory(settings.tokenizer, error) ? settings.tokenizer : settings.tokenizer.parent_path();
}

Plan plan_of(Settings settings, const Services& services) {
  check(settings);
  Plan plan;
  plan.settings = std::move(settings);
  for (const fs::path& path : outputs_of(plan.settings)) expect_writable(path);
  Inputs found = inputs_of(plan.settings);
  plan.inputs = std::move(found.files);
  plan.left_out = std::move(found.left_out);
  plan.settings.split = decided(plan.settings.split, plan.inputs);
  if (plan.settings.longer == Long::automatic)
    plan.settings.longer = plan.settings.format == Format::chat ? Long::drop : Long::cut;
  plan.border = tail_border(plan.inputs, plan.settings.val_fraction);
  plan.parts = parts_of(plan.inputs);
  std::error_code error;
  if (!plan.settings.tokenizer_out.empty() && fs::is_directory(plan.settings.tokenizer, error))
    throw Error(Exit::usage, "--tokenizer-out cannot be used",
                plan.settings.tokenizer.string() + " is a folder", "Give the file in it as --tokenizer?");
  if (!plan.settings.tokenizer.empty()) plan.tokenizer = services.open_tokenizer(plan.settings.tokenizer);
  plan.work.path = work_path(plan.settings.output) / key_of(plan);
  if (plan.settings.train_vocabulary != 0 && fs::exists(plan.work.model(), error))
    plan.tokenizer = services.open_tokenizer(plan.work.model());
  return plan;
}

void check_space(const Plan& plan, const Services& services) {
  const std::uint64_t input = total_text_bytes(plan.inputs);
  const std::int64_t vocabulary =
      plan.settings.train_vocabulary != 0 ? plan.settings.train_vocabulary : plan.vocabulary();
  const std::uint64_t width = vocabulary <= 65536 ? 2 : 4;
  std::uint64_t tokens = input / 4;
  if (is_tokens(plan.settings.format)) tokens = input / (plan.settings.format == Format::u32 ? 4 : 2);
  std::uint64_t there = 0;  // an earlier run's
  std::error_code error;
  for (const std::string& name : files::list(plan.work.path))
    if (const auto bytes = fs::file_size(plan.work.path / name, error); !error) there += bytes;
  const std::uint64_t needed = 2 * tokens * width;
  const std::uint64_t free = services.free_bytes(plan.settings.output);
  if (needed > free + there)
    throw Error(
        Exit::runtime, "the tokens of this corpus do not fit on the disk",
        fmt::format("an input of about {} needs about {} beside {}, and {} are free", size_text(input),
                    size_text(needed), plan.settings.output.string(), size_text(free)),
        "Choose an --output on a larger disk, or go on with --no-space-check?");
}

std::uint64_t free_bytes_beside(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  struct statvfs status = {};
  if (::statvfs(folder.c_str(), &status) != 0) throw system_error("cannot look at " + folder.string(), errno);
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

}  // namespace holdfast::corpus
