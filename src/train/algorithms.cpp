#include "src/train/algorithms.hpp"

#include "src/base/files.hpp"
#include "src/base/log.hpp"

namespace holdfast::train {

void agree_on_algorithms(device::Device& device, comm::Communicator& world, const std::filesystem::path& file,
                         const std::function<void()>& leaf) {
  device.take_notes(true);
  leaf();
  device.take_notes(false);
  std::string text;
  if (world.rank() == 0) {
    const std::string known = std::filesystem::exists(file) ? files::read_text(file) : "";
    text = device.choices(known);
    if (text != known) {
      log::info("algorithms were chosen and are kept in {}", file.string());
      files::replace_atomically(file, text, 0644);
    }
  }
  text = comm::broadcast_text(world, text, 0);
  if (!text.empty()) device.use_choices(text);
}

}  // namespace holdfast::train
