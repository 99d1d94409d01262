// headline() says what goes on. What SLURM says of the job comes first: it waits, it has ended before the run
// was over, or it is one whose leader has not written yet. Else from_record() decides, with the first that
// holds from the end of a run back to its start: outcome, drain, end of an attempt, waiting, eviction, pause,
// training, restoring, starting. If SLURM has not answered, the record counts alone: no answer does not mean
// that the job is gone.
//
// status_text() writes a line for each fact, in fixed order, and leaves out most of those that do not apply;
// status_json() adds the same facts to those of result.json. Numbers of the last line of the metrics are read
// by typed(): a missing or damaged one makes no error. Nothing is asked for here: files and SLURM were read
// before.
#include "launcher/supervise/status_view.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/strict_json.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;

/// The saves of the ranks need not be on record, and none is.
bool saves_unseen(const StatusFacts& f) { return !f.promises.writes_run_dir && f.state.durable_step < 0; }

/// What a program is known to do that need not report.
std::string program(const StatusFacts& f) {
  if (f.promises.always_reports()) return "";
  const bool speaks = !f.state.attempts.empty() && f.state.attempts.back().restored;
  const char* what = speaks ? "it speaks to its agents"
                     : f.promises.reports == config::Reports::expected
                         ? "it is to speak to its agents, and has not yet"
                     : f.promises.saves_on_sigterm ? "it does not speak, and saves on SIGTERM"
                                                   : "it does not speak: steps and saves are not known";
  return fmt::format("program     {}\n", what);
}

std::string joined(const std::vector<std::string>& words, const char* none) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text.empty() ? none : text;
}

/// Nodes that failed in earlier jobs, and how often.
std::string in_ledger(const StatusFacts& f) {
  std::vector<std::string> out;
  if (f.roster)
    for (const auto& node : f.roster->nodes)
      if (node.past_failures > 0)
        out.push_back(fmt::format("{} failed {} times in earlier jobs", node.name, node.past_failures));
  return fmt::format("{}", fmt::join(out, ", "));
}

/// Nodes that checks have found to be so, and why. Critical ones are used last.
std::map<std::string, std::string> found(const RunState& state, control::NodeHealth::Fitness fitness) {
  std::map<std::string, std::string> out;
  for (const auto& [node, health] : state.health)
    if (health.fitness == fitness) out[node] = fmt::format("{}: {}", name_of(fitness), health.why);
  return out;
}
const char* in_words(TimeUse use) {
  switch (use) {
    case TimeUse::queue:
      return "in the queue";
    case TimeUse::gather:
      return "waiting for agents";
    case TimeUse::clear:
      return "ending old ranks";
    case TimeUse::launch:
      return "starting ranks";
    case TimeUse::restore:
      return "restoring";
    case TimeUse::productive:
      return "productive";
    case TimeUse::redone:
      return "done again";
    case TimeUse::shrunk:
      return "slower with fewer nodes";
    case TimeUse::saves:
      return "waiting for saves";
    case TimeUse::paused:
      return "paused";
    case TimeUse::hung:
      return "hung";
    case TimeUse::detect:
      return "noticing failures";
    case TimeUse::decide:
      return "deciding";
    case TimeUse::end:
      return "ending";
    case TimeUse::count_:
      break;
  }
  return "";
}

/// Ranks are up that report nothing, and are not about to.
bool runs_unreported(const StatusFacts& f) {
  if (f.promises.reports >= config::Reports::expected || !f.state.attempt_live()) return false;
  const auto& live = f.state.attempts.back();
  return live.launched_s && !live.restored;
}

/// The lines of the time account.
std::string time_text(const StatusFacts& f) {
  const TimeAccount& time = f.state.time;
  if (time.total() <= 0) return "";
  const double of_nodes = time.goodput_of_nodes();
  const bool redone_unknown =
      runs_unreported(f) ||
      std::ranges::any_of(f.state.attempts, [](const AttemptRecord& a) { return !a.reports && a.ran_s > 0; });
  return fmt::format("time        {}\ngoodput     {:.1f} %{}{}\n", in_words(time), 100 * time.goodput(),
                     of_nodes > 0 ? fmt::format(", of the allocated node time {:.1f} %", 100 * of_nodes) : "",
                     redone_unknown ? ", at most: which steps were done again is not known" : "");
}

/// Nodes with a bad record in this run, and what it is.
std::map<std::string, std::string> records(const RunState& state) {
  std::map<std::string, std::string> out;
  for (const auto& [node, past] : state.pasts)
    if (std::string words = past.in_words(state.last_at); !words.empty()) out[node] = std::move(words);
  return out;
}

/// Of a time as metrics.jsonl has it, without its fraction; nothing for any other text.
std::optional<double> unix_seconds_of(const std::string& utc) {
  std::tm parts{};
  const char* rest = ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (!rest || (*rest != '.' && *rest != 'Z')) return std::nullopt;
  return static_cast<double>(::timegm(&parts));
}

/// ", 12.0 s ago"; "" when it is not known.
std::string age(const StatusFacts& f, std::optional<double> at) {
  return at && f.now > 0 ? fmt::format(", {} ago", duration_text(std::max(0.0, f.now - *at))) : "";
}

/// Seconds until the last step, at the pace of the newest one; nothing while the run does not train.
std::optional<double> time_left(const StatusFacts& f) {
  const RunState& s = f.state;
  if (s.outcome || !f.steps || !f.last_step || !s.attempt_live() || s.paused || s.drain ||
      !s.attempts.back().first_step_at || (f.job && f.job->unanswered.empty() && !f.job->live))
    return std::nullopt;
  const auto left = *f.steps - typed<std::int64_t>(*f.last_step, "step").value_or(0);
  const double step_s = typed<double>(*f.last_step, "step_s").value_or(0);
  return left >= 0 && step_s > 0 ? std::optional(static_cast<double>(left) * step_s) : std::nullopt;
}

std::string local_time(double unix) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(static_cast<std::time_t>(unix)));
}

/// The reason of a job, in brackets.
std::string reason_text(const JobFacts& job) {
  if (job.reason.empty()) return "";
  return fmt::format(" ({}{}{})", job.reason, job.meaning.empty() ? "" : ": ", job.meaning);
}

/// The line of the job.
std::string job_text(const JobFacts& job) {
  const std::string id = job.id ? std::to_string(*job.id) : "none";
  if (!job.local.empty())
    return fmt::format("job         none: a local run, {}{}\n", job.local,
                       !job.unanswered.empty() ? "; whether it lives is not known: " + job.unanswered
                       : !job.live             ? ", which has ended"
                       : job.start             ? ", since " + local_time(*job.start)
                                               : "");
  if (!job.unanswered.empty())
    return fmt::format("job         {}; SLURM was asked in vain: {}\n", id, job.unanswered);
  if (!job.id) return "job         none\n";
  if (job.state.empty()) return fmt::format("job         {}, which SLURM does not know any more\n", id);
  std::string text = fmt::format("job         {} {}{}", id, job.state, reason_text(job));
  if (job.start && job.live)
    text += fmt::format(", {} {}", job.pending ? "expected to start at" : "since", local_time(*job.start));
  return text + "\n";
}

/// No leader of the job that SLURM names has written into the record yet.
bool of_another_job(const StatusFacts& f) {
  const std::string id = f.job->id ? std::to_string(*f.job->id) : "";
  return !f.state.job.empty() && f.state.job.substr(0, f.state.job.find('.')) != id;
}

/// A program with the client is running, and none of its ranks has taken this order.
bool untaken(const StatusFacts& f, const char* order) {
  return !f.promises.always_reports() && f.state.attempt_live() && f.state.attempts.back().reports &&
         !f.state.heard.contains(order);
}

enum class Reasons { told, left_out };

/// What the record says goes on. `reasons`: they may be the words of programs and people.
std::string from_record(const StatusFacts& f, Reasons reasons = Reasons::told) {
  const RunState& s = f.state;
  const auto reason = [&](const char* before, const std::string& why, const char* after = "") {
    return why.empty() || reasons == Reasons::left_out ? "" : before + why + after;
  };
  if (s.outcome)
    return s.outcome->exit_code == 0 ? "done"
                                     : fmt::format("{} (exit {}{})", s.outcome->status, s.outcome->exit_code,
                                                   reason(": ", s.outcome->why));
  if (s.attempts.empty()) return f.last_step ? "trained without agents" : "waiting for nodes";
  const auto& a = s.attempts.back();
  if (s.drain && s.drain->what.stop)
    return fmt::format("{} ending{}",
                       saves_unseen(f)      ? "waiting for the ranks, then"
                       : untaken(f, "stop") ? "told to save, which no rank has taken yet, then"
                                            : "saving, then",
                       reason(" (", s.drain->what.reason, ")"));
  if (a.ended_at) return "between attempts";
  if (!a.waits_for.empty()) return "waiting" + reason(": ", a.waits_for);
  if (!s.evicting.empty()) return "saving, then going on without " + s.evicting.begin()->first;
  if (s.paused) return untaken(f, "pause") ? "told to hold, which no rank has taken yet" : "paused";
  if (a.first_step_at) return "training";
  if (a.restored) return "restored, first step under way";
  if (runs_unreported(f)) return "running, and the program reports no progress";
  return f.promises.always_reports() || !a.launched_s ? "starting ranks"
                                                      : "starting; the program has reported nothing yet";
}

}  // namespace

std::vector<std::string> spares(const StatusFacts& f) {
  std::vector<std::string> out;
  if (!f.roster) return out;
  const std::vector<std::string> placed =
      f.state.attempts.empty() ? std::vector<std::string>{} : f.state.attempts.back().placement;
  for (const auto& node : f.roster->nodes)
    if (std::find(placed.begin(), placed.end(), node.name) == placed.end() &&
        !f.state.lost.contains(node.name))
      out.push_back(node.name);
  return out;
}

std::string in_words(const AttemptRecord& a) {
  if (!a.ended_at)
    return fmt::format(
        "{:>3}  running{}", a.number,
        a.restored ? fmt::format(", from step {} ({})", a.restored->step, a.restored->level) : "");
  std::string text =
      fmt::format("{:>3}  {} {}", a.number, a.cause,
                  a.reports ? fmt::format("at step {}", a.last_step)
                            : fmt::format("after {}, at an unknown step", duration_text(a.ran_s)));
  if (!a.node.empty()) text += " on " + a.node;
  if (a.cause != "finished") {
    text += fmt::format(", noticed after {}", duration_text(a.detected_s));
    if (a.recovered_s)
      text += fmt::format(", training again {} later, {} step{} done again", duration_text(*a.recovered_s),
                          a.lost_steps, a.lost_steps == 1 ? "" : "s");
  }
  return text;
}

std::string in_words(const TimeAccount& time) {
  constexpr double least_share = 1e-3;  // what is less is left out
  if (time.total() <= 0) return "";
  std::vector<std::pair<double, TimeUse>> parts;
  for (int use = 0; use < static_cast<int>(TimeUse::count_); ++use)
    if (const double share = time.of(static_cast<TimeUse>(use)) / time.total(); share >= least_share)
      parts.emplace_back(share, static_cast<TimeUse>(use));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> words;
  for (const auto& [share, use] : parts)
    words.push_back(fmt::format("{:.1f} % {}", 100 * share, in_words(use)));
  return fmt::format("{}: {}", duration_text(time.total()), fmt::join(words, ", "));
}

std::map<std::string, std::string> unfit(const RunState& state) {
  return found(state, control::NodeHealth::Fitness::critical);
}
std::map<std::string, std::string> warned(const RunState& state) {
  return found(state, control::NodeHealth::Fitness::warning);
}

std::optional<double> last_step_at(const StatusFacts& f) {
  if (!f.last_step) return std::nullopt;
  const auto time = f.last_step->find("time");
  if (time == f.last_step->end() || !time->is_string()) return std::nullopt;
  return unix_seconds_of(time->get<std::string>());
}

std::string state_for_all(const StatusFacts& f) { return from_record(f, Reasons::left_out); }

std::string headline(const StatusFacts& f) {
  if (!f.job || !f.job->unanswered.empty()) return from_record(f);
  const JobFacts& job = *f.job;
  const bool final = f.state.over_for_good();
  if (job.live && !job.pending && of_another_job(f)) return "starting; was " + from_record(f);
  if (job.live ? !job.pending : final) return from_record(f);
  if (!job.live) {
    const std::string now = !job.local.empty()  ? "its 'holdfast run --local' has ended"
                            : job.state.empty() ? "no job"
                                                : fmt::format("its job has ended ({})", job.state);
    return f.state.attempts.empty() ? now : fmt::format("{}; was {}", now, from_record(f));
  }
  std::string out = "in the queue";
  if (final)
    out = (f.state.outcome->exit_code == 0 ? "done" : f.state.outcome->status) + ", and in the queue again";
  if (!job.reason.empty()) out += fmt::format(" ({})", job.meaning.empty() ? job.reason : job.meaning);
  if (job.start) out += ", expected " + local_time(*job.start);
  return out;
}

void take_settings(const config::RunConfig& config, StatusFacts& facts) {
  facts.name = config.run.name;
  facts.promises = config::promises_of(config.rank);
  facts.steps.reset();
  if (facts.promises.trains_as_set) facts.steps = config.train.steps;
  facts.keeps_best = facts.promises.trains_as_set && config.eval.keep_best;
}

void count_steps(StatusFacts& facts) {
  if (facts.state.outcome) return;
  if (const auto at = last_step_at(facts)) facts.state.time.pass(*at);
  if (runs_unreported(facts) && facts.now > 0 && facts.job && facts.job->live && !facts.job->pending)
    facts.state.time.pass_running(facts.now);
}

std::string status_text(const StatusFacts& f) {
  const RunState& s = f.state;
  std::string text = fmt::format("{}: {}\n", f.name, headline(f));
  if (f.job) text += job_text(*f.job);
  text += program(f);
  if (f.last_step) {
    const json& m = *f.last_step;
    const auto loss = typed<double>(m, "loss");
    text += fmt::format(
        "step        {}{}, loss {}, {:.0f} tokens/s{}\n", typed<std::int64_t>(m, "step").value_or(0),
        f.steps ? fmt::format(" of {}", *f.steps) : "", loss ? fmt::format("{:.4f}", *loss) : "not a number",
        typed<double>(m, "tokens_per_s").value_or(0), age(f, last_step_at(f)));
  }
  if (const auto left = time_left(f)) text += fmt::format("left        {}\n", duration_text(*left));
  if (!s.attempts.empty()) {
    const auto& placed = s.attempts.back().placement;
    const bool shrunk = f.roster && static_cast<int>(placed.size()) < f.roster->slots();
    text += fmt::format(
        "nodes       {}{}\n", joined(placed, "none"),
        shrunk ? fmt::format(" ({} of {}: the run has shrunk)", placed.size(), f.roster->slots()) : "");
  }
  if (f.roster) text += fmt::format("spares      {}\n", joined(spares(f), "none"));
  std::vector<std::string> lost;
  std::set_difference(s.lost.begin(), s.lost.end(), s.evicted.begin(), s.evicted.end(),
                      std::back_inserter(lost));
  if (!lost.empty()) text += fmt::format("lost        {}\n", joined(lost, ""));
  if (!s.evicted.empty())
    text += fmt::format("evicted     {}\n", joined({s.evicted.begin(), s.evicted.end()}, ""));
  if (!s.suspects.empty())
    text += fmt::format("suspects    {}\n", joined({s.suspects.begin(), s.suspects.end()}, ""));
  for (const auto& [node, why] : s.slow) text += fmt::format("slow        {}\n", why);
  for (const auto& [node, why] : s.copies_off)
    text += fmt::format("copies      are off on {}: {}\n", node, why);
  for (const auto& [check, words] : s.shared_findings)
    text += fmt::format("most nodes  {} on {}; it counts for none of them\n", check, words);
  for (const auto& [node, why] : unfit(s)) text += fmt::format("unfit       {} {}\n", node, why);
  for (const auto& [node, why] : warned(s)) text += fmt::format("warning     {} {}\n", node, why);
  for (const auto& [node, words] : records(s)) text += fmt::format("record      {} {}\n", node, words);
  if (const std::string ledger = in_ledger(f); !ledger.empty())
    text += fmt::format("ledger      {}\n", ledger);
  if (f.term > 0) text += fmt::format("leader      {}, term {}\n", f.state.leader, f.term);
  text += s.durable_step >= 0 ? fmt::format("checkpoint  step {} (the newest durable one{})\n",
                                            s.durable_step, age(f, s.durable_at))
          : saves_unseen(f)   ? "checkpoint  what the program saves is not known to Holdfast\n"
                              : "checkpoint  none yet\n";
  if (f.best)
    text += fmt::format(
        "best        step {}{}\n", f.best->step,
        f.best->held_out_loss ? fmt::format(", held-out loss {:.4f}", *f.best->held_out_loss) : "");
  if (s.dropped > 0)
    text += fmt::format("saves       {} dropped since then; the last one: {}\n", s.dropped, s.dropped_why);
  if (s.unjudged_s > 0)
    text += fmt::format(
        "hangs       no silence is taken for one before an attempt has shown signs of life for {}\n",
        duration_text(s.unjudged_s));
  text += time_text(f);
  if (!s.attempts.empty()) text += "attempts\n";
  for (const auto& a : s.attempts) text += fmt::format("  {}\n", in_words(a));
  if (s.final_state && !s.final_state->state_digest.empty())
    text += fmt::format("digest      {}\n", s.final_state->state_digest);
  return text;
}

json status_json(const StatusFacts& f) {
  json j = result_of(f.state, f.best);
  j["name"] = f.name, j["state"] = headline(f);
  j["nodes"] = f.state.attempts.empty() ? std::vector<std::string>{} : f.state.attempts.back().placement;
  j["spares"] = spares(f), j["lost"] = f.state.lost, j["evicted"] = f.state.evicted;
  j["suspects"] = f.state.suspects, j["slow"] = f.state.slow, j["unfit"] = unfit(f.state),
  j["failures"] = f.state.failures, j["records"] = records(f.state);
  j["warnings"] = warned(f.state), j["shared_findings"] = f.state.shared_findings;
  j["copies_off"] = f.state.copies_off;
  j["paused"] = f.state.paused, j["orders_taken"] = f.state.heard;
  j["unjudged_s"] = f.state.unjudged_s;
  j["saves_dropped"] = f.state.dropped, j["saves_dropped_why"] = f.state.dropped_why;
  j["planned_nodes"] = f.roster ? json(f.roster->slots()) : json(nullptr);
  j["leader"] = f.state.leader, j["term"] = f.term;
  j["last_step"] = f.last_step ? *f.last_step : json(nullptr);
  const auto or_null = [](const auto& value) { return value ? json(*value) : json(nullptr); };
  j["steps"] = or_null(f.steps);
  j["last_step_unix"] = or_null(last_step_at(f));
  j["durable_unix"] = or_null(f.state.durable_at);
  j["left_s"] = or_null(time_left(f));
  j["slurm"] = nullptr;
  if (f.job && f.job->local.empty())
    j["slurm"] = {{"id", or_null(f.job->id)},      {"answered", f.job->unanswered.empty()},
                  {"why", f.job->unanswered},      {"state", f.job->state},
                  {"reason", f.job->reason},       {"meaning", f.job->meaning},
                  {"start", or_null(f.job->start)}};
  if (f.job && !f.job->local.empty()) j["local"] = {{"process", f.job->local}, {"live", f.job->live}};
  return j;
}

}  // namespace holdfast::launcher
