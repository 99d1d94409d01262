#pragma once
// TensorBoard event files with the tags of torchtitan where the value is the same.
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/sinks/sink.hpp"

namespace holdfast::launcher::sinks {

/// Tag and value, of one step.
using Scalars = std::vector<std::pair<std::string, double>>;
/// What TensorBoard shows of a line.
Scalars scalars_of(const nlohmann::json& line);

/// A record of TFRecord: length, its masked CRC32C, data, its masked CRC32C; mask: rotated right by 15, plus
/// 0xa282ead8.
std::string tf_record(std::string_view data);

/// A file in `folder`, which it makes. When the run goes back, a further one begins, whose start tells
/// TensorBoard to forget the steps of the one before. That one stays: a TensorBoard that reads it would not
/// go on without it. What cannot be written waits, up to max_waiting bytes.
class TensorBoard : public Sink {
 public:
  static constexpr std::size_t max_waiting = 64 << 20;

  explicit TensorBoard(std::filesystem::path folder);
  void restart() override;
  void take(const nlohmann::json& line) override;
  void flush() override;

 private:
  void begin();
  std::filesystem::path folder_, file_;
  std::string waiting_;
  std::int64_t written_ = 0;  ///< bytes of whole records in the file
  bool full_ = false;         ///< lines are left out
};

}  // namespace holdfast::launcher::sinks
