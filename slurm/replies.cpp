// From top to bottom: versions and states, the replies of squeue, sinfo and scontrol, and the error texts of
// all tools. fields_of() cuts a line at its bars into a fixed number of fields, the last of which is free
// text that may contain bars.
//
// A line that cannot be read is an Error where a decision rests on the reply (the number of a new job, the
// state of one job, the nodes), and is left out of the other lists. A state of a job that is not known counts
// as running, and a state of a node that is not known as unusable.
//
// kind_of_failure() compares an error text with three lists, in this order: what passes by itself, what the
// user has written wrong, and what the cluster does not have. A text that is in none of them ends with usage
// if it calls something invalid, else with runtime. A new text of SLURM belongs into one of the lists.
#include "slurm/replies.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "slurm/hostlist.hpp"
#include "slurm/reasons.hpp"
#include "src/base/text.hpp"

namespace holdfast::slurm {
namespace {

constexpr const char* tested_releases = "22.05, 24.11 and 26.05";

[[noreturn]] void fail(const char* tool, std::string_view text) {
  throw Error(Exit::runtime, std::string("the reply of ") + tool + " cannot be read",
              "it says '" + std::string(text.substr(0, 200)) + "'",
              "Is this SLURM older than 20.11, or the tool a site's own wrapper?");
}

/// The first N-1 fields end at a bar; the last is the rest of the line, with its bars.
template <std::size_t N>
std::optional<std::array<std::string_view, N>> fields_of(std::string_view text) {
  std::array<std::string_view, N> fields;
  for (std::size_t i = 0; i + 1 < N; ++i) {
    const auto bar = text.find('|');
    if (bar == std::string_view::npos) return std::nullopt;
    fields[i] = text.substr(0, bar);
    text.remove_prefix(bar + 1);
  }
  fields[N - 1] = text;
  return fields;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <std::size_t N>
bool has_any(std::string_view text, const std::array<std::string_view, N>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return has(text, part); });
}

/// "24.11.5" -> 2411; 0 when it is no version.
int release_of(std::string_view version) {
  const auto dot = version.find('.');
  const auto year = number<int>(version.substr(0, dot));
  const auto month = dot == std::string_view::npos ? std::nullopt : number<int>(version.substr(dot + 1, 2));
  return year && month ? *year * 100 + *month : 0;
}

/// SLURM writes "None", "(null)" and "n/a" for nothing.
std::string or_empty(std::string_view word) {
  return word == "None" || word == "none" || word == "(null)" || word == "n/a" || word == "N/A"
             ? std::string()
             : std::string(word);
}

}  // namespace

const char* name_of(JobState state) {
  switch (state) {
    case JobState::pending:
      return "pending";
    case JobState::running:
      return "running";
    case JobState::completing:
      return "completing";
    case JobState::finished:
      return "finished";
  }
  return "?";
}

std::string read_version(std::string_view out) {
  const auto space = trimmed(out).find_last_of(' ');
  const std::string_view word =
      space == std::string_view::npos ? trimmed(out) : trimmed(out).substr(space + 1);
  return !word.empty() && word.front() >= '0' && word.front() <= '9' && has(word, ".") ? std::string(word)
                                                                                       : std::string();
}

std::string version_warning(std::string_view version) {
  const int release = release_of(version);
  if (release == 0) return "this SLURM does not say its version; Holdfast expects 22.05 or newer";
  const std::string name(version);
  if (release < 2011)
    return "SLURM " + name + " has no overlapping steps; Holdfast needs 20.11 or newer and is tested with " +
           tested_releases;
  if (release < 2205 || release > 2605)
    return "SLURM " + name + (release < 2205 ? " is older" : " is newer") +
           " than what Holdfast is tested with: " + tested_releases;
  return {};
}

std::string read_comment(std::string_view out) { return or_empty(trimmed(out)); }

bool requeues_preempted_jobs(std::string_view version) { return release_of(version) >= 2405; }

bool read_preempted(std::string_view out) {
  out = trimmed(out);
  return !out.empty() && out.front() >= '1' && out.front() <= '9';
}

JobId read_submitted(std::string_view out) {
  // A site's submit filter may print text first: the job id is the last line.
  const auto lines = lines_of(trimmed(out));
  if (lines.empty()) fail("sbatch", out);
  const std::string_view word = trimmed(lines.back());
  const auto id = number<JobId>(word.substr(0, word.find(';')));
  if (!id || *id <= 0) fail("sbatch", out);
  return *id;
}

JobState job_state(std::string_view word) {
  static constexpr std::array<std::string_view, 7> waiting = {
      "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "POWER_UP_NODE"};
  static constexpr std::array<std::string_view, 11> ended = {
      "BOOT_FAIL", "CANCELLED",     "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED",
      "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",  "TIMEOUT"};
  if (std::find(waiting.begin(), waiting.end(), word) != waiting.end()) return JobState::pending;
  if (std::find(ended.begin(), ended.end(), word) != ended.end()) return JobState::finished;
  return word == "COMPLETING" ? JobState::completing : JobState::running;
}

namespace {

/// The number of a job with which a line begins, before a bar.
std::optional<JobId> first_number(std::string_view line) {
  const auto bar = line.find('|');
  return bar == std::string_view::npos ? std::nullopt : number<JobId>(trimmed(line.substr(0, bar)));
}

/// The entry of a job among those of several; a name, at an entry's end, may have lines of its own.
std::string_view entry_of(std::string_view out, JobId id) {
  std::size_t begin = std::string_view::npos;
  for (std::size_t at = 0; at < out.size();) {
    const auto end = std::min(out.find('\n', at), out.size());
    const auto first = first_number(out.substr(at, end - at));
    if (first && begin != std::string_view::npos) return out.substr(begin, at - begin);
    if (first == id) begin = at;
    at = end + 1;
  }
  return begin == std::string_view::npos ? std::string_view() : out.substr(begin);
}

}  // namespace

std::optional<Job> read_job(std::string_view out, JobId id) {
  if (trimmed(out).empty()) return std::nullopt;
  if (!first_number(out.substr(0, out.find('\n')))) fail("squeue", out);
  out = entry_of(out, id);
  while (!out.empty() && out.back() == '\n') out.remove_suffix(1);
  if (out.empty()) return std::nullopt;
  const auto fields = fields_of<7>(out);
  if (!fields) fail("squeue", out);
  const auto& [number_text, state, reason, nodes, batch_host, end, name] = *fields;
  Job job;
  job.id = id;
  job.state = job_state(state);
  job.state_text = state;
  job.reason = or_empty(reason);
  job.nodes = expand(or_empty(nodes));
  job.batch_host = or_empty(batch_host);
  // A requeued job shows the end that its last run would have had.
  if (job.state != JobState::pending)
    if (const auto seconds = number<long>(end); seconds && *seconds > 0)
      job.end_time = static_cast<double>(*seconds);
  job.name = name;
  return job;
}

std::optional<JobConstraints> read_job_constraints(std::string_view out) {
  out = trimmed(out);
  if (out.empty()) return std::nullopt;
  const auto fields = fields_of<2>(out);
  if (!fields) fail("squeue", out);
  JobConstraints constraints{{}, expand(or_empty((*fields)[1]))};
  for (std::string_view rest = (*fields)[0]; !rest.empty();) {
    const auto end = std::min(rest.find(','), rest.size());
    constraints.partitions.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return constraints;
}

std::vector<JobId> read_jobs_of_script(std::string_view out, const std::string& script) {
  std::vector<JobId> ids;
  for (const auto line : lines_of(out)) {
    const auto fields = fields_of<3>(line);
    if (!fields || (*fields)[2] != script || job_state((*fields)[1]) == JobState::finished) continue;
    if (const auto id = number<JobId>(trimmed((*fields)[0]))) ids.push_back(*id);
  }
  return ids;
}

namespace {

/// A line of the queue, as own_jobs_argv() asks for it.
std::optional<OwnJob> in_queue(std::string_view line) {
  const auto fields = fields_of<5>(line);
  if (!fields) return std::nullopt;
  const auto& [number_text, state, reason, start, script] = *fields;
  const auto id = number<JobId>(trimmed(number_text));
  if (!id) return std::nullopt;
  const auto seconds = number<long>(start);
  return OwnJob{*id,
                job_state(state),
                std::string(state),
                std::string(or_empty(reason)),
                seconds ? std::optional(static_cast<double>(*seconds)) : std::nullopt,
                std::string(script)};
}

}  // namespace

std::optional<OwnJob> read_queued_job(std::string_view out, JobId id) {
  for (const auto line : lines_of(out)) {
    auto job = in_queue(line);
    if (!job) fail("squeue", out);
    if (job->id == id) return job;
  }
  return std::nullopt;
}

JobName read_task(std::string_view out, JobId id) {
  for (const auto line : lines_of(out)) {
    const auto fields = fields_of<3>(line);
    if (!fields || number<JobId>(trimmed((*fields)[0])) != id) continue;
    const auto array = number<JobId>(trimmed((*fields)[1]));
    const auto task = number<std::int64_t>(trimmed((*fields)[2]));  // else "N/A", or "3-8" of tasks that wait
    if (array && task) return {*array, *task};
  }
  return id;
}

std::optional<JobId> read_number(std::string_view out, std::string_view name) {
  for (const auto line : lines_of(out)) {
    const auto fields = fields_of<3>(line);
    if (!fields) continue;
    const auto id = number<JobId>(trimmed((*fields)[0]));
    if (id && read_task(line, *id).text() == name) return id;
  }
  return std::nullopt;
}

std::vector<OwnJob> read_own_jobs(std::string_view out) {
  std::vector<OwnJob> jobs;
  for (const auto line : lines_of(out))
    if (auto job = in_queue(line); job && job->state != JobState::finished) jobs.push_back(std::move(*job));
  return jobs;
}

std::vector<std::string> read_steps_named(std::string_view out, std::string_view name) {
  std::vector<std::string> steps;
  for (const auto line : lines_of(out))
    if (const auto fields = fields_of<2>(line); fields && trimmed((*fields)[1]) == name)
      steps.emplace_back(trimmed((*fields)[0]));
  return steps;
}

std::set<int> read_processes(std::string_view out) {
  std::set<int> pids;
  for (const auto line : lines_of(out)) {
    const auto word = trimmed(line);
    if (const auto pid = number<int>(word.substr(0, word.find_first_of(" \t")))) pids.insert(*pid);
  }
  return pids;
}

std::optional<std::string> read_script_of_job(std::string_view out, JobId id) {
  for (const auto line : lines_of(out)) {
    const auto fields = fields_of<3>(line);
    if (!fields || number<JobId>(trimmed((*fields)[0])) != id) continue;
    if (job_state((*fields)[1]) == JobState::finished) continue;
    return std::string((*fields)[2]);
  }
  return std::nullopt;
}

int gpus_in(std::string_view gres) {
  int sum = 0;
  while (!gres.empty()) {
    // Commas in brackets belong to the sockets of one entry: "gpu:h100:8(S:0,2)".
    std::size_t end = 0;
    for (int depth = 0; end < gres.size() && (depth > 0 || gres[end] != ','); ++end)
      depth += gres[end] == '(' ? 1 : gres[end] == ')' ? -1 : 0;
    const std::string_view entry = gres.substr(0, std::min(end, gres.find('(')));
    if (entry.starts_with("gpu:")) sum += number<int>(entry.substr(entry.rfind(':') + 1)).value_or(0);
    gres.remove_prefix(std::min(end + 1, gres.size()));
  }
  return sum;
}

std::map<std::string, int> read_gpus(std::string_view out, JobId id) {
  const std::string begin = "JobId=" + std::to_string(id) + " ";
  std::map<std::string, int> gpus;
  bool ours = false;  // the first task of a job array is shown with all others, of other numbers
  for (auto line : lines_of(out)) {
    if (line.starts_with("JobId=")) ours = line.starts_with(begin);
    constexpr std::string_view nodes_mark = "     Nodes=", cpus_mark = " CPU_IDs=", gres_mark = " GRES=";
    const auto cpus = line.find(cpus_mark), gres = line.find(gres_mark);
    if (!ours || !line.starts_with(nodes_mark) || cpus == std::string_view::npos ||
        gres == std::string_view::npos)
      continue;
    const int count = gpus_in(trimmed(line.substr(gres + gres_mark.size())));
    if (count == 0) continue;
    for (auto& node : expand(line.substr(nodes_mark.size(), cpus - nodes_mark.size())))
      gpus[std::move(node)] += count;
  }
  return gpus;
}

std::vector<Node> read_nodes(std::string_view out) {
  static constexpr std::array<std::string_view, 6> good = {"idle",       "allocated", "mixed",
                                                           "completing", "planned",   "reserved"};
  std::vector<Node> nodes;
  for (const auto line : lines_of(out)) {
    const auto fields = fields_of<4>(line);
    if (!fields) fail("sinfo", line);
    const auto& [name, state, address, reason] = *fields;
    // A node is listed once for each of its partitions.
    if (std::any_of(nodes.begin(), nodes.end(), [&, n = name](const Node& node) { return node.name == n; }))
      continue;
    Node node;
    node.name = name;
    node.state_text = state;
    node.address = address.empty() ? name : address;
    node.reason = or_empty(trimmed(reason));
    // A letter-less ending qualifies the state: '*' does not answer, '~' '%' '!' powered down or on its way.
    // '-' (planned for a job) and '$' (reserved) do no harm.
    const std::string_view word = state.substr(0, state.find_last_not_of("*~#!%$@^-+") + 1);
    const std::string_view marks = state.substr(word.size());
    node.usable = std::find(good.begin(), good.end(), word) != good.end() &&
                  marks.find_first_not_of("$-@") == std::string_view::npos;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

Exit kind_of_failure(std::string_view err) {
  // Unreachable or busy: the same command works later.
  static constexpr std::array<std::string_view, 17> later = {"Unable to contact slurm controller",
                                                             "Unable to establish control",
                                                             "Slurm controller not responding",
                                                             "Slurm backup controller in standby",
                                                             "Could not establish a configuration source",
                                                             "Socket timed out",
                                                             "Zero Bytes were transmitted",
                                                             "Connection refused",
                                                             "Connection timed out",
                                                             "No route to host",
                                                             "Transport endpoint",
                                                             "temporarily unable to accept job",
                                                             "Resource temporarily unavailable",
                                                             "Insane message length",
                                                             "Protocol authentication error",
                                                             "Invalid authentication credential",
                                                             "Slurmctld is not responding"};
  // Well-formed, but more than the cluster has or the user may have.
  static constexpr std::array<std::string_view, 10> too_much = {
      "Requested node configuration is not available",
      "Node count specification invalid",
      "More processors requested than permitted",
      "Requested time limit is invalid",
      "Requested partition configuration not available",
      "Invalid generic resource",
      "Memory required by task is not available",
      "Requested topology configuration is not available",
      "Job violates accounting/QOS policy",
      "Job size specification needs to be provided"};
  static constexpr std::array<std::string_view, 13> wrong = {"nvalid partition",
                                                             "nvalid account",
                                                             "nvalid qos",
                                                             "nvalid feature",
                                                             "nvalid node name",
                                                             "eservation is invalid",
                                                             "nvalid --",
                                                             "Invalid time",
                                                             "unrecognized option",
                                                             "Unable to open file",
                                                             "ermission denied",
                                                             "requires an argument",
                                                             "ambiguous"};
  if (has_any(err, later)) return Exit::transient;
  if (has_any(err, wrong)) return Exit::usage;
  if (has_any(err, too_much)) return Exit::impossible;
  return has(err, "nvalid") ? Exit::usage : Exit::runtime;
}

bool says_no_answer(std::string_view err) {
  return has(err, "Socket timed out") || has(err, "Zero Bytes were transmitted");
}
bool says_unknown_job(std::string_view err) { return has(err, "Invalid job id"); }
bool says_already_pending(std::string_view err) { return has(err, "Job is pending execution"); }

std::string complaint(std::string_view err) {
  auto lines = lines_of(trimmed(err));
  if (lines.empty()) return "it said nothing";
  // Some tools end with a pointer to their help, or with what any limit might be; the cause is in the line
  // before.
  while (lines.size() > 1 &&
         (lines.back().starts_with("Try \"") || has(lines.back(), "Job violates accounting/QOS policy")))
    lines.pop_back();
  std::string_view line = trimmed(lines.back());
  // "sbatch: error: ...", "slurm_load_jobs error: ...", "sbatch: unrecognized option ..."
  for (const std::string_view mark : {"error: ", "fatal: ", "sbatch: ", "srun: "})
    if (const auto at = line.find(mark); at != std::string_view::npos) {
      line.remove_prefix(at + mark.size());
      break;
    }
  const std::string words = reason_in_words(line);
  return std::string(line) + (words.empty() ? "" : ": " + words);
}

}  // namespace holdfast::slurm
