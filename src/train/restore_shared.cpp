#include "src/train/restore_shared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/catalog.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/train/agree.hpp"

namespace holdfast::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The settings of a model file: neither comments nor its name say what the model is; what adapters are is in
/// the identity of the arithmetic, and where their base lies may change.
std::string settings_of(const std::string& model_toml) {
  std::istringstream lines(model_toml.substr(0, model_toml.find("\n[adapters]")));
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
  if (found.numerics == checkpoint::imported_numerics) return;
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

/// What the other ranks need to know of a checkpoint to decide.
struct Announced {
  std::string path;  ///< "": there is none
  PointId point;
  std::vector<int> bad_shards;
  int shards = 0;
  std::vector<std::string> notes;

  std::string text() const {
    return json::array(
               {path, point.samples, point.step, point.tokens, point.memory, bad_shards, shards, notes})
        .dump(-1, ' ', false, json::error_handler_t::replace);
  }
  static Announced from(const std::string& text) {
    const json j = json::parse(text);
    return {j.at(0), {j.at(1), j.at(2), j.at(3), j.at(4)}, j.at(5), j.at(6), j.at(7)};
  }
};

Announced announced(const fs::path& path, const checkpoint::Manifest& manifest) {
  Announced out{path.string(), id_of(manifest.point), {}, static_cast<int>(manifest.shards.size()), {}};
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    std::error_code missing;
    const auto bytes = fs::file_size(path / manifest.shards[i].file, missing);
    if (missing || static_cast<std::int64_t>(bytes) != manifest.shards[i].bytes)
      out.bad_shards.push_back(static_cast<int>(i));
  }
  return out;
}

/// On the one rank that looks: the newest below `before_step` that can be of use.
Announced look_for_older(const fs::path& checkpoints, std::int64_t before_step,
                         const std::set<PointId>& offered) {
  std::vector<std::string> notes;
  for (const std::int64_t step : checkpoint::committed_steps(checkpoints)) {
    if (step >= before_step) continue;
    const fs::path path = checkpoint::committed_path(checkpoints, step);
    try {
      const checkpoint::Manifest manifest = checkpoint::read_manifest(path);
      Announced found = announced(path, manifest);
      if (manifest.point.step == step && (found.bad_shards.empty() || offered.contains(found.point))) {
        found.notes = notes;
        return found;
      }
      notes.push_back(checkpoint::why_unsound(path).value_or(
          fmt::format("{} holds step {}", path.string(), manifest.point.step)));
    } catch (const Error& error) {
      notes.emplace_back(error.what());
    }
    log::warn("passing over a damaged checkpoint: {}", notes.back());
  }
  return {"", {}, {}, 0, notes};
}

}  // namespace

Error cannot_resume(const fs::path& path, const std::string& why) {
  return Error(Exit::runtime, fmt::format("cannot resume from {}", path.string()), why,
               "Resume from another checkpoint, or from auto?");
}

SharedLevel::SharedLevel(const RunDir& dir, const checkpoint::Facts& facts, bool other_numerics,
                         comm::Communicator& world)
    : dir_(dir), facts_(facts), other_numerics_(other_numerics), world_(world) {}

bool SharedLevel::add_older(const std::set<PointId>& offered,
                            const std::function<Parts(int writer)>& parts_of_shard) {
  std::string text;
  together(world_, world_.rank() == 0,
           [&] { text = look_for_older(dir_.checkpoints(), before_step_, offered).text(); });
  const Announced found = Announced::from(comm::broadcast_text(world_, text, 0));
  notes_.insert(notes_.end(), found.notes.begin(), found.notes.end());
  if (found.path.empty()) return false;
  before_step_ = found.point.step;
  // A snapshot of the same point has the layout of this run; the checkpoint need not. Without the same number
  // of writers nothing follows from a shard.
  const bool same_writers = found.shards == world_.size();
  SharedOffer offer{found.point, {}};
  if (!same_writers && !found.bad_shards.empty()) return add_older(offered, parts_of_shard);
  for (const int shard : found.bad_shards) {
    const Parts parts = parts_of_shard(shard);
    offer.bad.insert(parts.begin(), parts.end());
    notes_.push_back(
        fmt::format("{} of {} is missing or cut", checkpoint::shard_file_name(shard), found.path));
  }
  append(found.path, std::move(offer));
  return true;
}

void SharedLevel::add(const fs::path& path) {
  constexpr std::uint64_t damaged = 1, refused = 2;
  std::string text;
  std::optional<Failure> failure;
  try {
    if (world_.rank() == 0) text = announced(path, checkpoint::read_manifest(path)).text();
  } catch (const checkpoint::Damaged& error) {
    failure = Failure{damaged, 0, error.what()};
  } catch (const Error& error) {
    failure = Failure{refused, 0, error.what()};
  }
  if (const auto worst = worst_failure(world_, failure)) {
    if (worst->severity == refused) throw Error(Exit::usage, worst->text);
    throw cannot_resume(path, worst->text);
  }
  append(path, {Announced::from(comm::broadcast_text(world_, text, 0)).point, {}});
}

void SharedLevel::append(const fs::path& path, SharedOffer offer) {
  paths_.push_back(path);
  offers_.push_back(std::move(offer));
  manifests_.emplace_back();
}

const checkpoint::Manifest& SharedLevel::manifest(int i) {
  auto& known = manifests_[static_cast<std::size_t>(i)];
  if (!known) {
    checkpoint::Manifest read = checkpoint::read_manifest(path(i));
    check_facts(read.facts, facts_, path(i), other_numerics_, world_.rank() == 0);
    known = std::move(read);
  }
  return *known;
}

checkpoint::Salvaged SharedLevel::load(int i, const checkpoint::State& into) {
  return checkpoint::salvage(path(i), manifest(i), into);
}

}  // namespace holdfast::train
