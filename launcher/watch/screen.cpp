// screen() builds its lines from top to bottom: title, step, speed, parts of a step, checkpoint, disk,
// curves, nodes with what their ranks do, attempts, events, and the footer with what cannot be read.
// shares_of() divides the height that is left below the head: nodes get a quarter at most, attempts an eighth
// (but two lines if they need them), events a third of the rest, and curves what remains. first_of() cuts a
// list, and says how many lines it leaves out, so nodes() and attempts() put the most important first. From
// 120 columns on there are two curves, from 24 lines on parts of a step and disk.
//
// There are always `height` lines. At last each is cut to the width, and made printable if it is no curve:
// what programs have written into the record cannot reach the terminal as control characters.
#include "launcher/watch/screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "launcher/report/event_words.hpp"
#include "launcher/watch/curve.hpp"
#include "slurm/hostlist.hpp"
#include "src/base/as_size.hpp"
#include "src/base/clock.hpp"
#include "src/base/strict_json.hpp"
#include "src/base/units.hpp"

namespace holdfast::launcher::watch {
namespace {

constexpr int label_width = 12;
constexpr int width_for_two_plots = 120, gap_between_plots = 2;

/// Of a screen, in lines.
struct Shares {
  int curve = 0, nodes = 0, attempts = 0, events = 0;
};

std::string labelled(const char* label, const std::string& text) {
  return fmt::format("{:<{}}{}", label, label_width, text);
}

/// "3.2 s ago"; a clock of another node may be ahead of ours.
std::string ago(double then, double now) { return duration_text(std::max(0.0, now - then)) + " ago"; }

/// To the second: "2026-11-25 23:06:03"
std::string moment(double unix) {
  std::string text = utc_iso8601(unix).substr(0, 19);
  text[10] = ' ';
  return text;
}

Style style_of(const StatusFacts& f) {
  const RunState& s = f.state;
  if (s.outcome) return s.outcome->exit_code == 0 ? Style::good : Style::bad;
  const bool trains = s.attempt_live() && s.attempts.back().first_step_at;
  return trains && !s.paused && !s.drain && s.evicting.empty() ? Style::good : Style::warning;
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, "   "));
}

Line title(const View& v, int width, Charset charset) {
  const std::string clock = moment(v.now) + " UTC";
  return {padded(printable(fmt::format("{}: {}", v.status.name, headline(v.status)), charset),
                 width - static_cast<int>(clock.size()) - 1) +
              " " + clock,
          style_of(v.status)};
}

/// " (chat 1.2000, code 0.9000)": where there are several held-out files, of which the first is the run's.
std::string by_file(const report::Metrics& m) {
  constexpr std::size_t most = 4;
  std::vector<std::string> losses;
  for (const auto& [file, series] : m.held_out_by_file)
    if (const auto& last = series.last()) losses.push_back(fmt::format("{} {:.4f}", file, last->value));
  if (losses.size() > most) losses.resize(most), losses.emplace_back("...");
  return losses.empty() ? "" : fmt::format(" ({})", fmt::join(losses, ", "));
}

std::string progress(const View& v) {
  const StatusFacts& f = v.status;
  if (!f.last_step) return labelled("step", "none yet");
  const auto step = holdfast::typed<std::int64_t>(*f.last_step, "step").value_or(0);
  std::vector<std::string> parts;
  parts.push_back(f.steps ? fmt::format("{} of {} ({:.0f} %)", step, *f.steps,
                                        100.0 * static_cast<double>(step) / static_cast<double>(*f.steps))
                          : std::to_string(step));
  const auto loss = f.last_step->find("loss");
  if (loss != f.last_step->end())
    parts.push_back(loss->is_number() ? fmt::format("loss {:.4f}", loss->get<double>())
                                      : "loss not a number");
  if (const auto& held_out = v.metrics.held_out.last())
    parts.push_back(
        fmt::format("held-out {:.4f}{} (step {})", held_out->value, by_file(v.metrics), held_out->step));
  if (f.state.outcome)
    parts.push_back("ended " + moment(f.state.outcome->at));
  else if (const auto at = last_step_at(f))
    parts.push_back(ago(*at, v.now));
  if (!f.state.outcome && f.steps > step && v.metrics.step_s.count() > 0)
    parts.push_back(fmt::format(
        "{} left", duration_text(static_cast<double>(*f.steps - step) * v.metrics.step_s.mean())));
  return labelled("step", joined(parts));
}

/// A number of the newest step; nothing: its line has none.
std::optional<double> of_newest_step(const View& v, const char* key) {
  if (!v.status.last_step) return std::nullopt;
  const auto found = v.status.last_step->find(key);
  return found != v.status.last_step->end() && found->is_number() ? std::optional(found->get<double>())
                                                                  : std::nullopt;
}

std::string speed(const View& v) {
  const auto& rate = v.metrics.tokens_per_s;
  const auto& step = v.metrics.step_s;
  std::vector<std::string> parts;
  if (rate.last())
    parts.push_back(fmt::format("{:.0f} tokens/s (mean {:.0f})", rate.last()->value, rate.mean()));
  if (step.last())
    parts.push_back(fmt::format("{:.3g} s a step (mean {:.3g})", step.last()->value, step.mean()));
  if (const auto mfu = of_newest_step(v, "mfu")) parts.push_back(fmt::format("MFU {:.1f} %", 100 * *mfu));
  for (const auto& [field, words] :
       {std::pair("device_peak_bytes", "peak of GPU memory "), {"host_peak_bytes", "peak of host memory "}})
    if (const auto peak = of_newest_step(v, field)) parts.push_back(words + size_text(*peak));
  return labelled("speed", parts.empty() ? "not known yet" : joined(parts));
}

/// Where the time of a step goes, as far as metrics and the record tell; empty: they do not.
std::string parts_of_step(const View& v) {
  constexpr std::array shown = {"data", "forward", "backward", "collective", "optimizer"};
  std::vector<std::string> parts;
  if (const auto wait = of_newest_step(v, "data_wait_s"))
    parts.push_back(fmt::format("data wait {:.3g} s", *wait));
  constexpr double least_stall_s = 1e-3;  // of each step
  if (const auto stall = of_newest_step(v, "save_stall_s"); stall && *stall >= least_stall_s)
    parts.push_back(fmt::format("save stall {:.3g} s", *stall));
  std::string longest;
  for (const char* phase : shown)
    if (const auto known = v.status.state.pace.find(phase); known != v.status.state.pace.end())
      longest += fmt::format(" {} {:.3g} s", phase, known->second.longest);
  if (!longest.empty()) parts.push_back("longest of late:" + longest);
  return parts.empty() ? "" : labelled("step parts", joined(parts));
}

std::string checkpoint(const View& v) {
  const RunState& s = v.status.state;
  std::vector<std::string> parts;
  if (s.durable_step < 0) parts.push_back("none yet");
  const auto durable = std::find_if(v.events.rbegin(), v.events.rend(), [&](const LogEntry& entry) {
    const auto* event = std::get_if<events::CheckpointDurable>(&entry.event);
    return event && event->step == s.durable_step;
  });
  if (s.durable_step >= 0)
    parts.push_back(fmt::format(
        "step {} is durable{}", s.durable_step,
        durable == v.events.rend()
            ? ""
            : fmt::format(", since {}", duration_text(std::max(0.0, v.now - durable->envelope.unix)))));
  if (s.time.total() > 0 && !s.attempts.empty())
    parts.push_back(fmt::format("goodput {:.1f} %", 100 * s.time.goodput()));
  if (s.dropped > 0) parts.push_back(fmt::format("{} dropped since then: {}", s.dropped, s.dropped_why));
  if (s.final_state && !s.final_state->state_digest.empty())
    parts.push_back("digest " + s.final_state->state_digest);
  return labelled("checkpoint", joined(parts));
}

/// Why a node was lost; empty: no event says it.
std::string why_lost(const View& v, const std::string& node) {
  for (auto entry = v.events.rbegin(); entry != v.events.rend(); ++entry)
    if (const auto* event = std::get_if<events::NodeLost>(&entry->event); event && event->node == node)
      return ": " + event->evidence;
  return "";
}

/// The most important first: the last ones may not be shown.
std::vector<Line> nodes(const View& v) {
  const RunState& s = v.status.state;
  std::vector<Line> out;
  if (!s.attempts.empty()) {
    const auto& placed = s.attempts.back().placement;
    const auto slots = v.status.roster ? as_size(v.status.roster->slots()) : placed.size();
    out.push_back({labelled(
        s.attempt_live() && !s.outcome ? "trains" : "trained",
        slurm::compress(placed) + (placed.size() < slots
                                       ? fmt::format(" ({} of {}: the run has shrunk)", placed.size(), slots)
                                       : fmt::format(" ({})", placed.size())))});
  }
  for (const auto& node : s.lost)
    if (!s.evicted.contains(node)) out.push_back({labelled("lost", node + why_lost(v, node)), Style::bad});
  for (const auto& [node, why] : s.evicting)
    out.push_back({labelled("leaves", fmt::format("{}: {}", node, why)), Style::warning});
  if (v.status.roster) {
    const auto free = spares(v.status);
    out.push_back({labelled("spare", free.empty() ? "none" : slurm::compress(free))});
  }
  if (!s.evicted.empty())
    out.push_back({labelled("evicted", slurm::compress({s.evicted.begin(), s.evicted.end()}))});
  for (const auto& [node, why] : s.slow) out.push_back({labelled("slow", why), Style::warning});
  for (const auto& [node, why] : unfit(s))
    out.push_back({labelled("unfit", fmt::format("{} {}", node, why)), Style::bad});
  for (const auto& [node, why] : warned(s))
    out.push_back({labelled("warning", fmt::format("{} {}", node, why)), Style::warning});
  if (!s.suspects.empty())
    out.push_back(
        {labelled("suspect", slurm::compress({s.suspects.begin(), s.suspects.end()})), Style::warning});
  return out;
}

/// Nodes by what their ranks do, the least far first; at most `most` lines.
std::vector<Line> ranks(const View& v, int most) {
  if (v.status.state.outcome) return {};
  std::map<std::pair<std::int64_t, std::string>, std::vector<std::string>> alike;
  for (const auto& node : v.live) {
    if (v.status.state.lost.contains(node.node)) continue;
    std::string phases;
    for (const auto& [phase, count] : node.phases) phases += fmt::format(" {} {}", count, phase);
    alike[{node.step, phases}].push_back(node.node);
  }
  std::vector<Line> out;
  for (const auto& [what, names] : alike) {
    if (static_cast<int>(out.size()) == most) {
      const auto others = std::ssize(alike) - most;
      out.back().text += fmt::format("   and {} other group{} of nodes", others, others == 1 ? "" : "s");
      break;
    }
    const auto& [step, phases] = what;
    out.push_back({labelled(out.empty() ? "ranks" : "",
                            fmt::format("{}:{}{}", slurm::compress(names),
                                        step >= 0 ? fmt::format(" step {},", step) : "", phases))});
  }
  return out;
}

/// Newest first.
std::vector<Line> attempts(const View& v) {
  std::vector<Line> out;
  const auto& all = v.status.state.attempts;
  for (auto attempt = all.rbegin(); attempt != all.rend(); ++attempt)
    out.push_back({labelled(out.empty() ? "attempts" : "", in_words(*attempt))});
  return out;
}

/// The newest first; at most `most`.
std::vector<Line> events_in_words(const View& v, int most) {
  std::vector<Line> out;
  for (auto entry = v.events.rbegin(); entry != v.events.rend() && static_cast<int>(out.size()) < most;
       ++entry)
    if (const std::string words = report::in_words(entry->event); !words.empty())
      out.push_back({moment(entry->envelope.unix) + "  " + words});
  return out;
}

/// The first `most` of them; the last one says how many are left out.
std::vector<Line> first_of(std::vector<Line> lines, int most) {
  if (static_cast<int>(lines.size()) <= most) return lines;
  const auto left_out = static_cast<int>(lines.size()) - most + 1;
  lines.resize(as_size(most));
  lines.back() = {labelled("", fmt::format("and {} more lines", left_out))};
  return lines;
}

std::vector<Line> plots(const View& v, int width, int height, Charset charset) {
  FailedAt failed;
  for (const auto& attempt : v.status.state.attempts)
    if (attempt.ended_at && attempt.reports && attempt.cause != "finished" && attempt.cause != "drained" &&
        attempt.cause != "stopped")
      failed.push_back(attempt.last_step);
  const bool two = width >= width_for_two_plots;
  const int each = two ? (width - gap_between_plots) / 2 : width;
  const std::string gap(gap_between_plots, ' ');
  std::vector<Line> out = {
      {two ? padded("loss (nats per token)", each) + gap + "tokens/s" : "loss (nats per token)",
       Style::heading}};
  const auto left = curve(v.metrics.loss.points(), failed, each, height, charset);
  const auto right = two ? curve(v.metrics.tokens_per_s.points(), failed, each, height, charset)
                         : std::vector<std::string>{};
  for (std::size_t i = 0; i < left.size(); ++i)
    out.push_back({two ? padded(left[i], each) + gap + right[i] : left[i], Style::curve});
  return out;
}

/// `body`: lines between the head and the last line, of which two are headings.
Shares shares_of(int body, int nodes, int attempts, int events) {
  Shares out;
  out.nodes = std::min(nodes, std::max(2, body / 4));
  out.attempts = std::min(attempts, std::max(2, body / 8));
  const int left = body - 2 - out.nodes - out.attempts;
  out.events = std::min(std::max(events, 1), left / 3);
  out.curve = left - out.events;
  return out;
}

constexpr int height_for_details = 24, height_for_ranks = 40;

}  // namespace

Line disk_line(const Disk& d) {
  std::vector<std::string> parts = {size_text(d.free_bytes) + " free"};
  Style style = Style::plain;
  if (d.checkpoint_bytes > 0) {
    const double room = std::floor(d.free_bytes / d.checkpoint_bytes);
    // While the next one is written, none is removed; until `keep` are there, none is removed at all.
    const double wanted = std::max(d.keep - d.kept, 0) + 1;
    parts.back() += fmt::format(": room for {:.0f} checkpoints of {}", room, size_text(d.checkpoint_bytes));
    if (room < wanted) {
      style = Style::bad;
      parts.push_back(d.between_s > 0 ? "full in " + duration_text(room * d.between_s)
                                      : fmt::format("{:.0f} are needed", wanted));
    } else if (d.archive_h > 0) {
      parts.push_back("full in " + duration_text((room - wanted + 1) * d.archive_h * 3600));
    }
  }
  return {labelled("disk", joined(parts)), style};
}

std::vector<Line> screen(const View& v, int width, int height, Charset charset) {
  std::vector<Line> out;
  const auto add = [&](std::vector<Line> lines) {
    std::move(lines.begin(), lines.end(), std::back_inserter(out));
  };
  if (width < least_width || height < least_height) {
    add({{fmt::format("{} x {} at least", least_width, least_height)}});
  } else {
    add({title(v, width, charset), {progress(v)}, {speed(v)}, {checkpoint(v)}});
    if (height >= height_for_details) {
      if (auto parts = parts_of_step(v); !parts.empty()) out.insert(out.begin() + 3, {std::move(parts)});
      if (v.disk) out.push_back(disk_line(*v.disk));
    }
    auto node_lines = nodes(v);
    const auto live = ranks(v, height >= height_for_ranks ? 6 : 1);
    // Behind the nodes that train.
    node_lines.insert(node_lines.begin() + std::min<std::ptrdiff_t>(1, std::ssize(node_lines)), live.begin(),
                      live.end());
    const auto attempt_lines = attempts(v);
    const int head = static_cast<int>(out.size());
    const auto event_lines = events_in_words(v, height);
    const Shares share =
        shares_of(height - head - 1, static_cast<int>(node_lines.size()),
                  static_cast<int>(attempt_lines.size()), static_cast<int>(event_lines.size()));
    add(plots(v, width, share.curve, charset));
    add(first_of(node_lines, share.nodes));
    add(first_of(attempt_lines, share.attempts));
    add({{"events, the newest first", Style::heading}});
    add({event_lines.begin(),
         event_lines.begin() + std::min<std::ptrdiff_t>(std::ssize(event_lines), share.events)});
  }
  out.resize(as_size(std::max(height, 1)));
  if (height > 1)
    out.back() = v.gap.empty() ? Line{v.footer, Style::heading} : Line{v.footer + "   " + v.gap, Style::bad};
  for (auto& line : out)
    line.text = fitted(line.style == Style::curve ? line.text : printable(line.text, charset), width);
  return out;
}

}  // namespace holdfast::launcher::watch
