// page_of() puts the sections in their order: result, course of the loss and of the throughput, time, plan,
// jobs, energy where SLURM was asked, attempts, failures, other events, checkpoints, settings. Each
// *_section() takes from the Facts what it shows, as rows, items, plots or sentences. Time, plan, attempts
// and events are left out where they have no rows; others say in a sentence that nothing is known.
//
// Much comes from result.json and plan.json, which may be damaged: part(), number(), text() and the like take
// a value of another type as absent, so that none can make the report fail. An event is told once:
// told_elsewhere() has the kinds that other sections tell, so that one of a new kind gets under "Other
// events" as soon as it has words.
#include "launcher/report/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/report/event_words.hpp"
#include "src/base/clock.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher::report {
namespace {

using nlohmann::json;

// What is read here may be a damaged file: what has not the type it should have counts as absent.
const json& part(const json& object, const char* key) {
  static const json none;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : none;
}
double number(const json& value, double absent = 0) {
  return value.is_number() ? value.get<double>() : absent;
}
std::string text(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }
std::string whole(const json& value) {
  return value.is_number_integer() ? std::to_string(value.get<std::int64_t>()) : "";
}
std::string seconds(const json& value) {
  return value.is_number() ? fmt::format("{:.2f}", value.get<double>()) : "";
}
/// "80.52 s", "5760.25 s (1.6 h)"
std::string wall_time(const json& value) {
  const std::string rounded = duration_text(number(value));
  return seconds(value) + " s" + (rounded.ends_with(" s") ? "" : " (" + rounded + ")");
}
std::string percent(double share) { return fmt::format("{:.2f} %", share * 100); }
std::vector<std::string> texts(const json& list) {
  std::vector<std::string> out;
  if (list.is_array())
    for (const auto& value : list) out.push_back(text(value));
  return out;
}
std::string kilowatt_hours(double joules) { return fmt::format("{:.4f}", joules / 3.6e6); }
/// To the second.
std::string moment(double unix) { return unix > 0 ? utc_iso8601(unix).substr(0, 19) + "Z" : ""; }

/// An attempt that neither did all steps nor ended because it was told to.
bool failed(const json& attempt) {
  const std::string cause = text(part(attempt, "cause"));
  return !cause.empty() && cause != "finished" && cause != "drained" && cause != "stopped";
}
const json& attempts(const Facts& f) { return part(f.result, "attempts"); }

std::int64_t failures(const Facts& f) {
  return attempts(f).is_array() ? std::count_if(attempts(f).begin(), attempts(f).end(), failed) : 0;
}

/// What the devices did with the steps, as rank 0 saw it.
void add_costs(Section& s, const Metrics& m) {
  if (m.mfu.count() > 0)
    s.table.rows.push_back(
        {"MFU", fmt::format("{} by PaLM's formula, {} with causal attention (means over steps)",
                            percent(m.mfu.mean()), percent(m.mfu_causal.mean()))});
  const double in_steps = m.step_s.mean() * static_cast<double>(m.step_s.count());
  if (in_steps > 0)
    s.table.rows.push_back(
        {"waiting for data", fmt::format("{:.2f} s, {} of the time in steps (rank 0)", m.data_wait_s,
                                         percent(m.data_wait_s / in_steps))});
  if (m.host_peak_bytes > 0)
    s.table.rows.push_back(
        {"memory, at most",
         size_text(m.host_peak_bytes) + " of the host" +
             (m.device_peak_bytes > 0 ? ", " + size_text(m.device_peak_bytes) + " of the device" : "") +
             " (rank 0)"});
}

Section result_section(const Facts& f) {
  Section s{"Result"};
  const json& r = f.result;
  const auto row = [&](const char* name, const std::string& value) {
    if (!value.empty()) s.table.rows.push_back({name, value});
  };
  row("status", f.now.empty() ? text(part(r, "status")) : f.now);
  row("why", text(part(r, "why")));
  row("exit code", whole(part(r, "exit_code")));
  const std::string step = whole(part(r, "final_step"));
  const auto& last = f.metrics.loss.last();
  if (!step.empty() || last)
    row("steps done", !step.empty() ? step
                      : f.steps > 0 ? fmt::format("{} of {}", last->step, f.steps)
                                    : std::to_string(last->step));
  if (part(r, "final_loss").is_number())
    row("final loss", fmt::format("{:.6f} nats per token", number(part(r, "final_loss"))));
  row("tokens", whole(part(r, "tokens")));
  row("state digest", text(part(r, "state_digest")));
  if (part(r, "durable_step").is_number())  // a run without agents does not say it here
    row("newest durable checkpoint",
        number(part(r, "durable_step"), -1) < 0 ? "none known" : "step " + whole(part(r, "durable_step")));
  if (part(r, "wall_s").is_number()) row("wall-clock time", wall_time(part(r, "wall_s")));
  if (part(r, "goodput").is_number()) row("goodput", percent(number(part(r, "goodput"))));
  if (number(part(r, "goodput_of_nodes")) > 0)
    row("goodput of nodes", percent(number(part(r, "goodput_of_nodes"))));
  if (attempts(f).is_array() && !attempts(f).empty())
    row("attempts", fmt::format("{}, of which {} failed", attempts(f).size(), failures(f)));
  if (f.metrics.tokens_per_s.count() > 0)
    row("throughput", fmt::format("{:.0f} tokens/s (mean over steps)", f.metrics.tokens_per_s.mean()));
  add_costs(s, f.metrics);
  row("run directory", f.dir);
  s.paragraphs = f.gaps;
  return s;
}

std::vector<Mark> marks_of(const Facts& f) {
  std::vector<Mark> out;
  if (!attempts(f).is_array()) return out;
  for (const auto& a : attempts(f)) {
    const std::string number_text = whole(part(a, "attempt"));
    const json& from = part(part(a, "restored_from"), "step");
    if (from.is_number_integer() && number_text != "1")
      out.push_back({from.get<std::int64_t>(), number_text,
                     fmt::format("attempt {} goes on from step {}", number_text, whole(from)), false});
    if (failed(a) && part(a, "last_step").is_number_integer())
      out.push_back({part(a, "last_step").get<std::int64_t>(), "x",
                     fmt::format("attempt {} ended at step {}: {} {}", number_text,
                                 whole(part(a, "last_step")), text(part(a, "cause")), text(part(a, "node"))),
                     true});
  }
  return out;
}

std::string in_short(const char* what, const Series& series, int digits) {
  return fmt::format(
      "{}: last {:.{}f} (step {}), smallest {:.{}f} (step {}), largest {:.{}f} (step {}), mean {:.{}f}.",
      what, series.last()->value, digits, series.last()->step, series.smallest()->value, digits,
      series.smallest()->step, series.largest()->value, digits, series.largest()->step, series.mean(),
      digits);
}

Section course_section(const Facts& f) {
  Section s{"Loss and throughput"};
  const Metrics& m = f.metrics;
  if (m.lines == 0) {
    s.paragraphs.push_back("There are no metrics: no step was recorded in metrics.jsonl.");
    return s;
  }
  const auto show = [&](const char* title, const char* name, const Series& series, int digits) {
    if (series.count() == 0) return;
    s.items.push_back(in_short(name, series, digits));
    s.plots.push_back({title, series.points(), marks_of(f)});
  };
  show("Loss (nats per token)", "Loss", m.loss, 4);
  const auto show_each = [&](const std::string& what, const std::map<std::string, Series>& all) {
    constexpr std::size_t most = 8;  // more would hide the rest
    if (all.size() > most) return;
    for (const auto& [of, series] : all) {
      const std::string name = what + of;
      show((name + " (nats per token)").c_str(), name.c_str(), series, 4);
    }
  };
  if (m.held_out_by_file.empty()) show("Held-out loss (nats per token)", "Held-out loss", m.held_out, 4);
  show_each("Held-out loss of ", m.held_out_by_file);
  show_each("Loss of the source ", m.loss_by_source);
  show("Throughput (tokens/s)", "Throughput in tokens/s", m.tokens_per_s, 0);
  show("MFU (PaLM's formula, 0 to 1)", "MFU", m.mfu, 4);
  if (m.step_s.count() > 0) s.items.push_back(in_short("Step time in s", m.step_s, 4));
  s.paragraphs.push_back(
      "In plots, a dashed line is the start of an attempt, with its number, at the step that it was restored "
      "from; a "
      "solid line with an x is where an attempt failed. Steps that were done again are shown once, as they "
      "were done last.");
  if (const auto width = std::max(m.loss.width(), m.tokens_per_s.width()); width > 1)
    s.paragraphs.push_back(
        fmt::format("The plots show of every {} steps the smallest and the largest value.", width));
  if (m.without_loss > 0)
    s.paragraphs.push_back(fmt::format("{} steps have a loss that is not finite.", m.without_loss));
  if (m.lost > 0)
    s.paragraphs.push_back(fmt::format("Of {} steps the line was lost with its attempt.", m.lost));
  return s;
}

Section time_section(const Facts& f) {
  Section s{"Where the time went"};
  const json& parts = part(f.result, "time_s");
  if (!parts.is_object()) return s;
  const double wall = number(part(f.result, "wall_s"));
  s.table.header = {"part", "s", "share"};
  for (int use = 0; use < static_cast<int>(TimeUse::count_); ++use) {
    const char* name = name_of(static_cast<TimeUse>(use));
    const json& spent = part(parts, name);
    if (number(spent) > 0)
      s.table.rows.push_back({name, seconds(spent), wall > 0 ? percent(number(spent) / wall) : ""});
  }
  if (s.table.rows.empty()) return s;
  s.table.rows.push_back({"all", seconds(part(f.result, "wall_s")), percent(1)});
  s.paragraphs.push_back(
      "Every second from the first event of the run to its last one, over all jobs. Goodput is the share of "
      "'productive': steps whose results last.");
  if (f.metrics.save_stall_s > 0)
    s.paragraphs.push_back(
        fmt::format("Steps waited {:.2f} s for saves and snapshots.", f.metrics.save_stall_s));
  return s;
}

Section jobs_section(const Facts& f) {
  Section s{"Where it ran"};
  s.table.header = {"job", "from", "until", "nodes"};
  std::string job;
  for (const auto& entry : f.events) {
    const auto* elected = std::get_if<events::LeaderElected>(&entry.event);
    if (elected && elected->job != job) {
      job = elected->job;
      s.table.rows.push_back({job, moment(entry.envelope.unix), "",
                              elected->nodes > 0 ? std::to_string(elected->nodes) : "not known"});
    }
    if (!s.table.rows.empty()) s.table.rows.back()[2] = moment(entry.envelope.unix);
  }
  if (s.table.rows.empty())
    s.paragraphs.push_back("No event says where it ran: it has not started, or it runs without agents.");
  if (f.plan.is_object())
    s.paragraphs.push_back(fmt::format(
        "Planned: {} ranks on {} active nodes and {} spare{} of the cluster {}{}.",
        whole(part(f.plan, "world")), whole(part(f.plan, "active")), whole(part(f.plan, "spares")),
        number(part(f.plan, "spares")) == 1 ? "" : "s", text(part(f.plan, "cluster")),
        f.steps == 0 ? ""
                     : fmt::format("; model {}, {} parameters; {} in groups of {}",
                                   text(part(part(f.plan, "model"), "name")),
                                   whole(part(part(f.plan, "model"), "parameters")),
                                   text(part(part(f.plan, "shard"), "strategy")),
                                   whole(part(part(f.plan, "shard"), "group")))));
  return s;
}

/// What SLURM's accounting says; nothing else of a run measures energy.
Section energy_section(const Facts& f) {
  Section s{"Energy"};
  if (!f.energy) return s;
  const slurm::Energy& known = *f.energy;
  if (known.jobs.empty()) {
    s.paragraphs.push_back("It is not known: " + known.unknown);
    return s;
  }
  s.table.header = {"job", "from", "until", "kWh", "J"};
  double joules = 0;
  bool whole_run = true;
  for (const auto& job : known.jobs) {
    const char* absent = job.end ? "not measured" : "told when the job has ended";
    s.table.rows.push_back({std::to_string(job.job), moment(job.start), job.end ? moment(*job.end) : "",
                            job.joules ? kilowatt_hours(*job.joules) : "",
                            job.joules ? fmt::format("{:.0f}", *job.joules) : absent});
    joules += job.joules.value_or(0);
    whole_run = whole_run && job.joules;
  }
  for (const auto id : jobs_of(f.events))
    if (std::ranges::find(known.jobs, id, &slurm::JobEnergy::job) == known.jobs.end()) {
      s.table.rows.push_back({std::to_string(id), "", "", "", "SLURM's accounts do not have it"});
      whole_run = false;
    }
  if (known.jobs.size() > 1 && whole_run)
    s.table.rows.push_back({"all", "", "", kilowatt_hours(joules), fmt::format("{:.0f}", joules)});
  const double tokens = number(part(f.result, "tokens"));
  if (whole_run && tokens > 0)
    s.paragraphs.push_back(fmt::format(
        "{:.4g} J per token: all energy of the jobs, waiting and steps that were done again included, "
        "by the tokens of the run.",
        joules / tokens));
  if (!known.unknown.empty())
    s.paragraphs.push_back("Who measures it is not known: " + known.unknown);
  else if (known.source.empty())
    s.paragraphs.push_back("This cluster has no plug-in that measures energy (AcctGatherEnergyType).");
  if (joules > 0)
    s.paragraphs.push_back(fmt::format(
        "As SLURM's accounting has it (ConsumedEnergyRaw{}): it measures nodes, so that other jobs on them "
        "count, too.",
        known.source.empty() ? "" : ", measured by " + known.source));
  return s;
}

Section attempts_section(const Facts& f) {
  Section s{"Attempts"};
  s.table.header = {"attempt", "planned", "from step", "level", "to step", "ended", "steps lost", "nodes"};
  if (!attempts(f).is_array()) return s;
  for (const auto& a : attempts(f)) {
    double planned_at = 0;
    for (const auto& known : f.state.attempts)
      if (known.number == number(part(a, "attempt"), -1)) planned_at = known.planned_at;
    const json& from = part(a, "restored_from");
    const std::string cause = text(part(a, "cause"));
    s.table.rows.push_back({whole(part(a, "attempt")), moment(planned_at), whole(part(from, "step")),
                            text(part(from, "level")), whole(part(a, "last_step")),
                            cause.empty() ? "it had not ended" : cause, whole(part(a, "lost_steps")),
                            fmt::format("{}", fmt::join(texts(part(a, "placement")), " "))});
  }
  return s;
}

void add_failures(const Facts& f, std::vector<Section>& sections) {
  Section all{"Failures"};
  if (failures(f) == 0) all.paragraphs.push_back("No attempt has failed.");
  sections.push_back(all);
  if (failures(f) == 0) return;
  for (const auto& a : attempts(f)) {
    if (!failed(a)) continue;
    Section s{fmt::format("Attempt {}: {}", whole(part(a, "attempt")), text(part(a, "cause"))), 3};
    const auto row = [&](const char* name, const std::string& value) {
      if (!value.empty()) s.table.rows.push_back({name, value});
    };
    row("node to blame", text(part(a, "node")));
    if (number(part(a, "rank"), -1) >= 0) row("rank that failed first", whole(part(a, "rank")));
    row("at step", whole(part(a, "last_step")));
    row("steps lost", whole(part(a, "lost_steps")));
    row("detected after, s", seconds(part(a, "detected_s")));
    row("of it decided in, s", seconds(part(a, "decided_s")));
    row("recovered after, s", seconds(part(a, "recovered_s")));
    row("advice", text(part(a, "advice")));
    s.items = texts(part(a, "evidence"));
    sections.push_back(s);
  }
}

/// Kinds that other sections tell of.
bool told_elsewhere(const Event& event) {
  return std::visit(
      []<class E>(const E&) {
        return std::is_same_v<E, events::LeaderElected> || std::is_same_v<E, events::AttemptPlanned> ||
               std::is_same_v<E, events::AttemptAdopted> || std::is_same_v<E, events::PlacementVerified> ||
               std::is_same_v<E, events::Restored> || std::is_same_v<E, events::FirstStep> ||
               std::is_same_v<E, events::AttemptEnded> || std::is_same_v<E, events::EvictionOrdered> ||
               std::is_same_v<E, events::CheckpointDurable> || std::is_same_v<E, events::RunFinished>;
      },
      event);
}

Section events_section(const Facts& f) {
  Section s{"Other events"};
  s.table.header = {"when", "what"};
  for (const auto& entry : f.events)
    if (const std::string words = in_words(entry.event); !words.empty() && !told_elsewhere(entry.event))
      s.table.rows.push_back({moment(entry.envelope.unix), words});
  return s;
}

Section checkpoints_section(const Facts& f) {
  Section s{"Checkpoints"};
  s.table.header = {"step", "durable since", "attempt", "note", "now"};
  std::set<std::int64_t> damaged;
  for (const auto& entry : f.events)
    if (const auto* found = std::get_if<events::CheckpointDamaged>(&entry.event)) damaged.insert(found->step);
  for (const auto& entry : f.events) {
    const auto* durable = std::get_if<events::CheckpointDurable>(&entry.event);
    if (durable)
      s.table.rows.push_back({std::to_string(durable->step), moment(entry.envelope.unix),
                              std::to_string(durable->attempt), durable->note,
                              f.state.durable.count(durable->step) ? "kept"
                              : damaged.count(durable->step)       ? "damaged"
                                                                   : "removed"});
  }
  constexpr std::size_t shown = 100;
  if (s.table.rows.size() > shown) {
    s.paragraphs.push_back(
        fmt::format("{} checkpoints became durable; these are the newest {}.", s.table.rows.size(), shown));
    s.table.rows.erase(s.table.rows.begin(), s.table.rows.end() - shown);
  }
  if (s.table.rows.empty()) s.paragraphs.push_back("No event tells of a checkpoint.");
  return s;
}

/// What the plan foretells and the record has measured; a row needs both.
Section plan_section(const Facts& f) {
  Section s{"Planned and measured"};
  s.table.header = {"what", "planned", "measured"};
  const double floor_s = number(part(part(f.plan, "checkpoint"), "floor_s"));
  if (floor_s > 0 && f.metrics.persist_s.count() > 0)
    s.table.rows.push_back({"time to write a checkpoint", fmt::format("{:.2f} s at least", floor_s),
                            fmt::format("{:.2f} s (mean), {:.2f} s (longest)", f.metrics.persist_s.mean(),
                                        f.metrics.persist_s.largest()->value)});
  double most = -1;
  const json& losses = part(part(f.plan, "survives"), "losses");
  if (losses.is_array())
    for (const auto& loss : losses) most = std::max(most, number(part(loss, "steps"), -1));
  if (most >= 0 && failures(f) > 0) {
    double lost = 0;
    for (const auto& a : attempts(f)) lost = std::max(lost, number(part(a, "lost_steps")));
    s.table.rows.push_back({"steps done again after a failure", fmt::format("{:.0f} at most", most),
                            fmt::format("{:.0f} (most)", lost)});
  }
  const double hours = number(part(part(f.plan, "survives"), "hours_between_losses"));
  if (hours > 0 && failures(f) > 0 && part(f.result, "wall_s").is_number())
    s.table.rows.push_back(
        {"hours between failures", fmt::format("{:.1f}", hours),
         fmt::format("{:.1f}", number(part(f.result, "wall_s")) / 3600 / static_cast<double>(failures(f)))});
  return s;
}

Section settings_section(const Facts& f) {
  Section s{"Settings"};
  s.paragraphs.push_back("These differ from the defaults:");
  s.table.header = {"setting", "value", "default"};
  for (const auto& setting : f.settings) s.table.rows.push_back({setting.key, setting.now, setting.before});
  s.folded_title = "All settings (settings.toml)";
  s.folded = f.all_settings;
  return s;
}

}  // namespace

Page page_of(const Facts& f) {
  Page page{"Report of the run " + f.name, {result_section(f), course_section(f)}};
  for (auto section : {time_section(f), plan_section(f)})
    if (!section.table.rows.empty()) page.sections.push_back(section);
  page.sections.push_back(jobs_section(f));
  if (f.energy) page.sections.push_back(energy_section(f));
  if (auto section = attempts_section(f); !section.table.rows.empty()) page.sections.push_back(section);
  add_failures(f, page.sections);
  if (auto section = events_section(f); !section.table.rows.empty()) page.sections.push_back(section);
  page.sections.push_back(checkpoints_section(f));
  page.sections.push_back(settings_section(f));
  return page;
}

}  // namespace holdfast::launcher::report
