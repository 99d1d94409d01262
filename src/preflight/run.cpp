#include "src/preflight/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "src/base/access.hpp"
#include "src/base/files.hpp"
#include "src/base/own_run.hpp"
#include "src/config/bind.hpp"
#include "src/config/load.hpp"
#include "src/config/numerics.hpp"
#include "src/config/rank_promises.hpp"
#include "src/preflight/checks.hpp"
#include "src/preflight/paths.hpp"

namespace holdfast::preflight {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;

/// The first difference between two models, or "". Their names say nothing of what they are.
std::string difference(const config::ModelShape& here, const config::ModelShape& there) {
  for (const auto& setting : config::model_settings())
    if (setting.key != "name" && setting.get(here) != setting.get(there))
      return fmt::format("{} is {} there and {} here", setting.name(), config::spell(setting.get(there)),
                         config::spell(setting.get(here)));
  return {};
}

/// The settings of a model file: neither comments nor its name say what the model is; what adapters are is in
/// the identity of the arithmetic, and where their base lies may change.
std::string settings_of(const std::string& model_toml) {
  std::istringstream lines(model_toml.substr(0, model_toml.find("\n[adapters]")));
  std::string out;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && !line.starts_with('#') && !line.starts_with("name =")) out += line + "\n";
  return out;
}

/// What `differ` says, or why it cannot: the text of a model may be of another version.
template <class Differ>
void require_no_difference(const fs::path& path, Differ differ) {
  std::string other;
  try {
    other = differ();
  } catch (const Error& error) {
    other = error.problem();
  }
  if (!other.empty())
    throw Error(Exit::usage, fmt::format("the checkpoint {} belongs to another model", path.string()), other,
                "Choose another run.dir or model.file?");
}

/// The checkpoint that run.resume names, whole as far as names and sizes tell.
Manifest named_checkpoint(const fs::path& path) {
  try {
    Manifest manifest = checkpoint::read_manifest(path);
    checkpoint::check_sizes(path, manifest);
    return manifest;
  } catch (const Error& error) {
    const fs::path inside = RunDir{path}.checkpoints();
    const auto steps = checkpoint::committed_steps(inside);
    if (steps.empty() && files::is_there(RunDir{path}.config()))
      throw Error(Exit::usage, fmt::format("cannot resume from {}", path.string()),
                  "it is a run directory without a checkpoint", "Resume from a checkpoint, or from auto?");
    if (steps.empty()) throw cannot_resume(Exit::usage, path, error.what());
    throw Error(Exit::usage, fmt::format("cannot resume from {}", path.string()), error.what(),
                fmt::format("It is a run directory; name one of its checkpoints, for example {}?",
                            checkpoint::committed_path(inside, steps.front()).string()));
  }
}

/// The newest checkpoint of the run that can be read; ranks pass over the others, too.
std::optional<std::pair<fs::path, Manifest>> own_checkpoint(const RunDir& run, Problems& problems) {
  if (run.path.empty()) return {};
  for (const std::int64_t step : checkpoint::committed_steps(run.checkpoints())) {
    const fs::path path = checkpoint::committed_path(run.checkpoints(), step);
    try {
      return std::pair(path, checkpoint::sound_manifest(path, step));
    } catch (const checkpoint::Damaged& damaged) {
      problems.doubt(fmt::format("{}; ranks will pass it over", damaged.what()));
    } catch (const Error&) {  // ranks may be able to read it later
    }
  }
  return {};
}

/// With which other settings the run would go on, by those that lie in the checkpoint's run directory.
std::string changed_since(const fs::path& checkpoint, const config::RunConfig& now) {
  const fs::path run = fs::absolute(checkpoint).lexically_normal().parent_path().parent_path();
  try {
    const fs::path file = RunDir{run}.config();
    return files::is_there(file) ? config::changed_course(config::load(file).config, now) : "";
  } catch (const Error&) {  // of another version
    return "";
  }
}

void require_no_run(const RunDir& run) {
  auto steps = checkpoint::recorded_steps(run.durable());
  const auto there = checkpoint::committed_steps(run.checkpoints());
  steps.insert(steps.end(), there.begin(), there.end());
  if (!steps.empty()) throw holds_a_run(run.path, *std::ranges::max_element(steps));
}

}  // namespace

std::string require_facts(const checkpoint::Facts& found, const checkpoint::Facts& expected,
                          const fs::path& path, bool other_numerics) {
  if (settings_of(found.model_toml) != settings_of(expected.model_toml))
    require_no_difference(path, [&] {
      return difference(config::parse_model(expected.model_toml, "this run"),
                        config::parse_model(found.model_toml, path.string()));
    });
  if (found.numerics == checkpoint::imported_numerics) return {};
  std::string changed = config::arithmetic_difference(found.numerics, expected.numerics);
  if (!changed.empty() && !other_numerics) throw config::other_arithmetic(path.string(), changed);
  return changed;
}

Error cannot_resume(Exit exit, const fs::path& path, const std::string& why) {
  return {exit, fmt::format("cannot resume from {}", path.string()), why,
          "Resume from another checkpoint, or from auto?"};
}

Error holds_a_run(const fs::path& run, std::int64_t newest_step) {
  return {Exit::usage,
          fmt::format("the run directory {} already holds a run up to step {}", run.string(), newest_step),
          "run.resume is none, and a restart could not tell the two runs apart",
          "Choose another run.dir, or resume = \"auto\"?"};
}

void check_run_dir(const Subject& subject, Problems& problems) {
  const RunDir& run = subject.run;
  if (run.path.empty()) return;
  std::error_code error;
  const auto status = fs::status(run.path, error);
  const fs::path above = fs::exists(status) ? run.path : what_exists(run.path);
  if (std::string who = who_could_replace(run.path); !who.empty()) problems.doubt(std::move(who));
  if (fs::exists(status) && !fs::is_directory(status))
    throw Error(Exit::usage, "run.dir " + run.path.string() + " is not a directory", "it is a file",
                "Choose another run.dir?");
  if (const std::string why = why_not_writable(above); !why.empty())
    return problems.add_of_this_machine({Exit::usage,
                                         "cannot make files in the run directory " + run.path.string(),
                                         above.string() + ": " + why, "Choose another run.dir?"});
  if (!fs::exists(status)) return;
  if (!files::list_or_fail(run.path).empty() && !files::exists_or_fail(run.config()) &&
      !files::exists_or_fail(run.owner()))
    throw Error(Exit::usage, "run.dir " + run.path.string() + " is not a run directory",
                "it holds other files and no config.toml", "Choose another run.dir?");
}

void check_model(const Subject& subject, Problems&) {
  const RunDir& run = subject.run;
  if (run.path.empty() || !files::exists_or_fail(run.model())) return;
  const std::string different = difference(subject.model, config::load_model(run.model().string()));
  if (!different.empty())
    throw Error(Exit::usage, "the run directory " + run.path.string() + " is the run of another model",
                different, "Choose another run.dir?");
}

void check_checkpoint(const Subject& subject, Problems& problems) {
  const config::RunConfig& config = subject.config;
  const std::string& resume = config.run.resume;
  if (resume == "none") {
    if (!subject.requeued && !subject.run.path.empty()) require_no_run(subject.run);
    return;
  }
  if (resume != "auto" && !may_read(resume)) refuse_reading(resume);
  if (resume != "auto" && !files::exists_or_fail(resume))
    return problems.add_of_this_machine({Exit::usage, "there is no checkpoint " + resume,
                                         "run.resume names it",
                                         "Use auto, none or the path of a checkpoint?"});
  if (!config::promises_of(config.rank).writes_run_dir) return;  // the program looks at its own checkpoints
  const auto found = resume != "auto" ? std::optional(std::pair(fs::path(resume), named_checkpoint(resume)))
                                      : own_checkpoint(subject.run, problems);
  if (!found) return;
  const auto& [path, manifest] = *found;
  require_no_difference(path, [&] {
    return difference(subject.model, config::parse_model(manifest.facts.model_toml, path.string()));
  });
  if (!subject.settled) return;
  if (const std::string changed = changed_since(path, config); !changed.empty())
    problems.doubt("the run goes on with other settings than the run of its checkpoint had: " + changed);
  if (manifest.facts.numerics == checkpoint::imported_numerics || config.run.other_numerics == "continue")
    return;
  const std::string changed = config::arithmetic_difference(config::arithmetic_in(manifest.facts.numerics),
                                                            config::arithmetic_of(config));
  if (!changed.empty()) throw config::other_arithmetic(path.string(), changed);
}

}  // namespace holdfast::preflight
