#pragma once
// The newest values as a text file for the textfile collector of node_exporter.
#include <filesystem>
#include <string>
#include <vector>

#include "launcher/sinks/sink.hpp"
#include "launcher/supervise/status_view.hpp"

namespace holdfast::launcher::sinks {

/// Values of one name. Those whose name ends in _total are counters, others gauges.
struct Family {
  struct Value {
    std::string label;  ///< of the family's label; "" where that has none
    double number = 0;
  };
  std::string_view name, help;
  std::string_view label = {};  ///< beside `run`; "": none
  std::vector<Value> values = {};
};
/// In Prometheus' text format, each with the label `run`; families without a value are left out.
std::string text_of(const std::vector<Family>& families, const std::string& run);
/// What the record of a run says: goodput, failures, nodes, checkpoints.
std::vector<Family> families_of(const StatusFacts& facts);

/// The file is replaced as a whole, and removed with this object if that has written it: nobody scrapes a run
/// that is over.
class OpenMetrics : public Sink {
 public:
  /// `run` is the label of all metrics. Throws Error (usage) when the name of the file does not end in .prom,
  /// as node_exporter wants it.
  OpenMetrics(std::filesystem::path file, std::string run);
  ~OpenMetrics() override;
  OpenMetrics(const OpenMetrics&) = delete;
  OpenMetrics& operator=(const OpenMetrics&) = delete;
  void restart() override;
  void take(const nlohmann::json& line) override;
  /// The record as it is now; in the file with the next flush().
  void record(const StatusFacts& facts);
  void flush() override;
  /// The text of the file; empty before the first line or record.
  std::string text() const;

 private:
  std::filesystem::path file_;
  std::string run_;
  nlohmann::json last_, last_save_;
  std::vector<Family> recorded_;
  double save_stall_s_ = 0, data_wait_s_ = 0;
  bool changed_ = false, is_written_ = false;
};

}  // namespace holdfast::launcher::sinks
