// A folder of checkpoints, as the verbs that list, choose and remove look at it. Nothing is removed here.
#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/durable_record.hpp"
#include "checkpoint/index/retention.hpp"
#include "tests/fuzz/scratch.hpp"
#include "tests/fuzz/targets.hpp"

namespace holdfast::fuzz {
namespace {

using namespace checkpoint;

/// An Error of ours is a good answer; to one question it must not keep the others from being asked.
template <class Ask>
void ask(Ask question) {
  try {
    question();
  } catch (const Error&) {
  }
}

}  // namespace

void try_checkpoints(std::string_view bytes) {
  static const Scratch scratch;
  const fs::path folder = scratch.path() / "checkpoints", step = folder / "step-00000100";
  scratch.write("checkpoints/step-00000100/manifest.json", take_part(bytes));
  scratch.write("checkpoints/step-00000100/commit.json", take_part(bytes));
  const fs::path durable = scratch.write("durable.json", take_part(bytes));
  ask([&] { condition_of(step); });
  ask([&] { newest_sound_folder(folder); });
  ask([&] {
    const auto record = read_commit_record(step);
    if (record)
      expects(parse_commit_record(to_text(*record)) == *record,
              "what is accepted is written and accepted again");
  });
  ask([&] {
    const auto found = candidates(folder, 1);
    expects(found.size() == 1 && found.front().step == 100, "there is one checkpoint");
    expects(removable(folder, {.keep = 1, .archive_h = 1, .keep_files = 1}, found).empty(),
            "the only one stays");
    expects(outlived(folder, found).empty(), "nothing was put aside");
  });
  ask([&] { recorded_steps(durable); });
  ask([&] { recorded_attempt(durable); });
}

}  // namespace holdfast::fuzz
