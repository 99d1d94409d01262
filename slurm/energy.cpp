#include "slurm/energy.hpp"

#include <algorithm>
#include <charconv>

#include "slurm/asking.hpp"
#include "slurm/replies.hpp"
#include "slurm/site.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace holdfast::slurm {
namespace {

/// Accounts have whole seconds, of slurmctld's clock; a run has those of its nodes.
constexpr double apart_s = 60;
constexpr double unset_joules = 1e18;  // SLURM's NO_VAL64 and INFINITE64 are above it

std::vector<std::string> energy_argv(const std::vector<JobId>& jobs) {
  std::string ids;
  for (const JobId id : jobs) ids += (ids.empty() ? "" : ",") + std::to_string(id);
  // Without steps, of which several measure the same node.
  return {"sacct",
          "--noheader",
          "--parsable2",
          "--allocations",
          "--duplicates",
          "--jobs=" + ids,
          "--format=JobIDRaw,Start,End,ConsumedEnergyRaw"};
}

std::optional<double> joules_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0 && value < unset_joules))
    return std::nullopt;
  return value;
}

}  // namespace

std::vector<JobEnergy> read_energy(std::string_view out, const std::vector<JobId>& jobs, double from,
                                   double until) {
  std::vector<JobEnergy> read;
  for (const auto line : lines_of(out)) {
    const auto fields = split(trimmed(line), '|');
    if (fields.size() != 4) continue;
    JobEnergy one;
    const auto [rest, error] =
        std::from_chars(fields[0].data(), fields[0].data() + fields[0].size(), one.job);
    const bool is_job = error == std::errc{} && rest == fields[0].data() + fields[0].size();
    const auto start = seconds_in(fields[1]);
    if (!is_job || !start || std::ranges::find(jobs, one.job) == jobs.end()) continue;
    one.start = *start;
    one.end = seconds_in(fields[2]);
    one.joules = joules_in(fields[3]);
    if (one.start <= until + apart_s && one.end.value_or(until) + apart_s >= from) read.push_back(one);
  }
  std::ranges::stable_sort(read, {}, &JobEnergy::start);
  return read;
}

Energy energy(const std::vector<JobId>& jobs, double from, double until, std::chrono::milliseconds limit) {
  Energy known;
  if (jobs.empty()) return known;
  try {
    const Finished done = ask(energy_argv(jobs), limit);
    if (done.status != 0) {
      const bool no_accounts = done.err.find("accounting storage is disabled") != std::string::npos;
      known.unknown = no_accounts ? "SLURM keeps no accounts here" : "'sacct' failed: " + complaint(done.err);
      return known;
    }
    known.jobs = read_energy(done.out, jobs, from, until);
    if (known.jobs.empty()) {
      known.unknown = "SLURM's accounts have none of its jobs";
      return known;
    }
    const auto settings = read_settings(answer({"scontrol", "show", "config"}, limit));
    const auto type = settings.find("AcctGatherEnergyType");
    if (type == settings.end()) return known;
    known.source = type->second.substr(type->second.find('/') + 1);
    if (known.source == "none") known.source.clear();
  } catch (const Error& error) {
    known.unknown = error.what();
  }
  return known;
}

}  // namespace holdfast::slurm
