#include "src/train/engine/algorithms.hpp"

#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/run_dir.hpp"
#include "src/train/common/agree.hpp"

namespace holdfast::train {
namespace {

/// What cannot be looked at may hold the run's choices, and others in their place would change its bits.
std::string read_if_there(const std::filesystem::path& file) {
  return files::exists_or_fail(file) ? files::read_text(file) : "";
}

}  // namespace

void agree_on_algorithms(device::Device& device, comm::Communicator& world, const std::filesystem::path& file,
                         const std::filesystem::path& origin, const std::function<void()>& micro_batch) {
  device.take_notes(true);
  micro_batch();
  device.take_notes(false);
  std::string text;
  together(world, world.rank() == 0, [&] {
    const std::string here = read_if_there(file);
    std::string known = here;
    // A checkpoint lies in RUN/checkpoints/step-NNNNNNNN.
    if (known.empty() && !origin.empty())
      known = read_if_there(RunDir{std::filesystem::weakly_canonical(origin) / "../.."}.algorithms());
    text = device.choices(known);
    if (text != here) {
      log::info("the GPU's algorithms were {} and are recorded in {}",
                text == known ? "taken over" : "chosen", file.string());
      files::replace_atomically(file, text, 0644);
    }
  });
  text = comm::broadcast_text(world, text, 0);
  if (!text.empty()) device.use_choices(text);
}

}  // namespace holdfast::train
