#pragma once
// The newest values as a text file for the textfile collector of node_exporter.
#include <filesystem>
#include <string>

#include "launcher/sinks/sink.hpp"

namespace holdfast::launcher::sinks {

/// The file is replaced as a whole, and removed with this object: nobody scrapes a run that is over.
class OpenMetrics : public Sink {
 public:
  /// `run` is the label of all metrics. The name of the file must end in .prom for node_exporter.
  OpenMetrics(std::filesystem::path file, std::string run);
  ~OpenMetrics() override;
  OpenMetrics(const OpenMetrics&) = delete;
  OpenMetrics& operator=(const OpenMetrics&) = delete;
  void restart() override;
  void take(const nlohmann::json& line) override;
  void flush() override;
  /// The text of the file; empty before the first line.
  std::string text() const;

 private:
  std::filesystem::path file_;
  std::string run_;
  nlohmann::json last_;
  double save_stall_s_ = 0;
  bool changed_ = false;
};

}  // namespace holdfast::launcher::sinks
