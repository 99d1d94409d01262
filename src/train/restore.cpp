#include "src/train/restore.hpp"

#include <fmt/core.h>

#include <sstream>

#include "checkpoint/catalog.hpp"
#include "checkpoint/load.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/train/agree.hpp"
#include "src/train/state_digest.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t damaged = 1,
                        refused = 2;  // severities: a refusal ends the run, damage only the candidate

/// The settings of a model file: neither comments nor its name say what the model is.
std::string settings_of(const std::string& model_toml) {
  std::istringstream lines(model_toml);
  std::string out;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && !line.starts_with('#') && !line.starts_with("name =")) out += line + "\n";
  return out;
}

/// The parts of two identities that differ, "was X, now Y; ...": they are lists with commas.
std::string differences(const std::string& found, const std::string& expected) {
  std::istringstream was(found), now(expected);
  std::string out, a, b;
  for (;;) {
    const bool more_a = static_cast<bool>(std::getline(was, a, ',')),
               more_b = static_cast<bool>(std::getline(now, b, ','));
    if (!more_a && !more_b) return out;
    if (!more_a) a.clear();
    if (!more_b) b.clear();
    const auto trimmed = [](const std::string& s) {
      return s.substr(std::min(s.size(), s.find_first_not_of(' ')));
    };
    if (a != b)
      out += (out.empty() ? "" : "; ") + fmt::format("was \"{}\", now \"{}\"", trimmed(a), trimmed(b));
  }
}

void check_facts(const checkpoint::Facts& found, const checkpoint::Facts& expected, const fs::path& path,
                 bool other_numerics, bool speaks) {
  if (settings_of(found.model_toml) != settings_of(expected.model_toml))
    throw Error(Exit::usage, fmt::format("the checkpoint {} belongs to another model", path.string()),
                "its model file differs from this run's", "Choose another run.dir or model.file?");
  const std::string difference = differences(found.numerics, expected.numerics);
  if (!difference.empty() && !other_numerics)
    throw Error(
        Exit::usage,
        fmt::format("the checkpoint {} was computed with other arithmetic than this run's", path.string()),
        difference,
        fmt::format("{}, or run.other_numerics = \"continue\" and give up bit-identical results?",
                    // Of algorithms, see agree_on_algorithms(): nobody can set them.
                    difference.find("\"choices ") == std::string::npos
                        ? "Set it back"
                        : "Put the tuning.json of the run that made it into this run's directory"));
  if (!speaks) return;
  if (!difference.empty()) log::warn("not bit-identical to the run before the checkpoint: {}", difference);
  if (found.data_identity != expected.data_identity)
    log::warn("the data differ from those of the checkpoint ({}; now {})", found.data_identity,
              expected.data_identity);
}

/// One candidate, on this rank: nothing, or why not.
std::optional<Failure> try_load(const fs::path& path, const StateViews& views, const checkpoint::Facts& facts,
                                bool other_numerics, comm::Communicator& world,
                                checkpoint::Manifest& manifest) {
  try {
    manifest = checkpoint::read_manifest(path);
    check_facts(manifest.facts, facts, path, other_numerics, world.rank() == 0);
    checkpoint::load(path, manifest, views.held);
  } catch (const checkpoint::Damaged& error) {
    return Failure{damaged, world.rank(), error.what()};
  } catch (const Error& error) {
    return Failure{refused, world.rank(), error.what()};
  }
  return std::nullopt;
}

/// Every block was sound; is the whole the state that was saved? Collective.
std::optional<Failure> try_digest(const fs::path& path, const StateViews& views,
                                  const checkpoint::Manifest& manifest, comm::Communicator& world) {
  const StateDigest digest = digest_state(views.owned, world);
  if (digest.tensors == manifest.digests) return std::nullopt;
  return Failure{damaged, world.rank(),
                 fmt::format("{} does not hold the state that it names (digest {}, should be {})",
                             path.string(), digest.text(), checkpoint::digest_text(manifest.state_digest))};
}

/// The next candidate, chosen on rank 0 and told to all; empty: none left.
std::string next_candidate(const RunDir& dir, std::int64_t before_step, std::string& note,
                           comm::Communicator& world) {
  std::string path;
  if (world.rank() == 0) {
    std::vector<std::string> notes;
    if (const auto found = checkpoint::newest_sound(dir.checkpoints(), before_step, &notes))
      path = found->path.string();
    for (const std::string& passed : notes) {
      log::warn("passing over a damaged checkpoint: {}", passed);
      note += (note.empty() ? "" : "; ") + passed;
    }
  }
  note = comm::broadcast_text(world, note, 0);
  return comm::broadcast_text(world, path, 0);
}

void refuse_to_mix(const RunDir& dir, comm::Communicator& world) {
  together(world, world.rank() == 0, [&] {
    const auto steps = checkpoint::committed_steps(dir.checkpoints());
    if (!steps.empty())
      throw Error(Exit::usage,
                  fmt::format("the run directory {} already holds a run up to step {}", dir.path.string(),
                              steps.front()),
                  "run.resume is none, and a restart could not tell the two runs apart",
                  "Choose another run.dir, or resume = \"auto\"?");
  });
}

}  // namespace

RestoredFrom restore(const RunDir& dir, const RestoreOrder& order, const StateViews& views,
                     const checkpoint::Facts& facts, comm::Communicator& world) {
  RestoredFrom out;
  const bool named = order.resume != "auto" && order.resume != "none";
  if (order.resume == "none" && !order.restarted) {
    refuse_to_mix(dir, world);
    return out;
  }
  bool use_named = named && !order.restarted;
  for (std::int64_t before_step = INT64_MAX;;) {
    std::string path = use_named ? order.resume : next_candidate(dir, before_step, out.note, world);
    if (path.empty() && named && !use_named)
      path = order.resume, use_named = true;  // restarted before the first own checkpoint
    if (path.empty()) {
      if (!out.note.empty() && world.rank() == 0)
        log::warn("no sound checkpoint is left: starting from step 0");
      return out;
    }
    checkpoint::Manifest manifest;
    auto failure = worst_failure(world, try_load(path, views, facts, order.other_numerics, world, manifest));
    if (!failure) failure = try_digest(path, views, manifest, world);
    if (!failure) {
      out.fresh = false;
      out.point = manifest.point;
      return out;
    }
    if (failure->severity == refused) throw Error(Exit::usage, failure->text);
    if (use_named)
      throw Error(Exit::runtime, fmt::format("cannot resume from {}", path), failure->text,
                  "Resume from another checkpoint, or from auto?");
    if (world.rank() == 0) log::warn("passing over a damaged checkpoint: {}", failure->text);
    out.note += (out.note.empty() ? "" : "; ") + failure->text;
    before_step = checkpoint::parse_name(fs::path(path).filename().string()).step;
  }
}

}  // namespace holdfast::train
