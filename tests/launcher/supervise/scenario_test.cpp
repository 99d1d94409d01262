// Scenarios of supervision, as text: scenarios/*.txt. Each is a story of a run, for operators to read and for
// this test to repeat with the real supervisor in the simulated cluster:
//
//   # a comment
//   kill n1                       a command begins its line; `commands_` below has all of them
//   until training 2
//      3.20  n1 was lost: ...     what the run's record says from then on, in the report's words, and when
//      3.20  -> n0 n4 n2: ...     orders that nodes get
//            = running: ...       how the run stands after the command, if that has changed
//
// Checkpoints, what follows from each plan in its time (old ranks are told to end, all are up, they train),
// and events for which the report has no words are not shown, unless the run `shows=all`. `quietly` before a
// command leaves out all but how the run stands. HOLDFAST_UPDATE_GOLDEN (scripts/golden_update.sh) writes
// what the supervisor does now under each command.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/report/event_words.hpp"
#include "src/base/env.hpp"
#include "src/config/load.hpp"
#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using nlohmann::json;
using test::FakeCluster;
using test::Shape;

/// A line of a scenario cannot be read; its text says why.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The words of a line, taken one after the other.
class Words {
 public:
  explicit Words(const std::string& line) : in_(line) {}
  bool any() { return static_cast<bool>(in_ >> std::ws) && !in_.eof(); }
  std::string take(const char* what) {
    std::string word;
    if (!(in_ >> word)) throw Mistake(fmt::format("{} is missing", what));
    return word;
  }
  std::string rest() {
    std::string text;
    std::getline(in_ >> std::ws, text);
    return text;
  }
  double number(const std::string& word, const char* unit = "") {
    double value = 0;
    const char* end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc() || std::string_view(at, end) != unit)
      throw Mistake(fmt::format("'{}' is no number{}{}", word, *unit ? " with the unit " : "", unit));
    return value;
  }
  int integer(const char* what) { return static_cast<int>(number(take(what))); }
  /// A,B,C
  static std::vector<std::string> list(const std::string& word) {
    std::vector<std::string> items;
    std::istringstream in(word);
    for (std::string item; std::getline(in, item, ',');) items.push_back(item);
    return items;
  }
  double seconds() { return number(take("a time"), "s"); }
  /// KEY=VALUE
  std::pair<std::string, std::string> option() {
    const std::string word = take("KEY=VALUE");
    const auto at = word.find('=');
    if (at == std::string::npos) throw Mistake(fmt::format("'{}' is not KEY=VALUE", word));
    return {word.substr(0, at), word.substr(at + 1)};
  }
  bool yes(const std::string& value) {
    if (value != "yes" && value != "no") throw Mistake(fmt::format("'{}' is neither yes nor no", value));
    return value == "yes";
  }
  /// One of these by its name.
  template <class Value>
  Value one_of(const std::map<std::string, Value>& known, const std::string& word) {
    const auto found = known.find(word);
    if (found != known.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [name, value] : known) names.push_back(name);
    throw Mistake(fmt::format("'{}' is none of {}", word, fmt::join(names, ", ")));
  }

 private:
  std::istringstream in_;
};

/// `all`: it shows all that happens.
Shape shape_of(Words& words, bool& all) {
  Shape shape;
  std::vector<std::string> settings;
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"nodes", [&](auto& v) { shape.slots = static_cast<int>(words.number(v)); }},
      {"spares", [&](auto& v) { shape.spares = static_cast<int>(words.number(v)); }},
      {"steps", [&](auto& v) { shape.steps = static_cast<int>(words.number(v)); }},
      {"checkpoint_every", [&](auto& v) { shape.checkpoint_every = static_cast<int>(words.number(v)); }},
      {"drain", [&](auto& v) { shape.drain_s = static_cast<int>(words.number(v, "s")); }},
      {"save", [&](auto& v) { shape.save_s = words.number(v, "s"); }},
      {"local_level", [&](auto& v) { shape.local = words.yes(v); }},
      {"reports", [&](auto& v) { shape.reports = words.yes(v); }},
      {"shrinks", [&](auto& v) { shape.facts.shrinking.together = words.yes(v); }},
      {"shows", [&](auto& v) { all = v == "all"; }}};
  while (words.any()) {
    const auto [key, value] = words.option();
    if (key.starts_with("supervise."))
      settings.push_back(key + "=" + value);
    else
      words.one_of(known, key)(value);
  }
  shape.limits = config::load_defaults(settings).config.supervise;
  if (shape.facts.shrinking.together)
    shape.facts.shrinking = {.nodes = shape.slots,
                             .together = 1,
                             .ranks_per_node = 2,
                             .group = 2,
                             .parts = shape.slots,
                             .steps = shape.steps};
  return shape;
}

/// Fields of an event that decide something and that the report's words leave out.
const std::map<std::string, std::vector<std::string>> fields_shown = {
    {"attempt_planned", {"answer", "wait_s"}},
    {"attempt_ended",
     {"kind", "blame", "blamed", "rank", "status", "xid", "xid_rank", "detected_s", "decided_s"}},
    {"node_lost", {"slot"}},
    {"drain", {"step"}},
    {"run_shrunk", {"slowdown"}},
    {"straggler", {"what"}},
    {"eviction_ordered", {"sign"}},
    {"node_evicted", {"sign"}},
    {"silent_corruption", {"nodes", "trusted_step"}},
    {"run_finished", {"exclude"}}};

/// What follows from each plan, and needs to be shown once.
const std::set<std::string> in_its_time = {"leader_elected", "spare_promoted", "placement_verified",
                                           "first_step", "checkpoint_durable"};

class Scenario {
 public:
  /// What follows from a command, as lines. Throws Mistake.
  std::string carry_out(const std::string& line) {
    out_.clear();
    Words words(line);
    std::string verb = words.take("a command");
    const bool quiet = verb == "quietly";
    if (quiet) verb = words.take("a command");
    const auto found = words.one_of(commands_, verb);
    const bool begins = verb == "run" || verb == "training", waits = verb == "wait" || verb == "until";
    if (!begins && !c_) throw Mistake("no run has begun: `run` or `training` comes first");
    try {
      found(words);
    } catch (const std::out_of_range&) {
      throw Mistake("no such node or rank lives");
    }
    if (words.any()) throw Mistake(fmt::format("'{}' is more than the command takes", words.rest()));
    if (quiet) out_.clear();
    const std::string before = std::exchange(standing_, standing());
    if (waits || (!begins && standing_ != before))
      out_ +=
          fmt::format("         = {}, step {}, durable {}\n", standing_, c_->reached, state().durable_step);
    return out_;
  }

 private:
  // --- what is shown

  void show(const std::string& line) { out_ += fmt::format("  {:7.2f}  {}\n", c_->now - 1000, line); }
  std::string names(const std::vector<int>& nodes) const {
    std::vector<std::string> out;
    for (const int n : nodes) out.push_back(c_->roster.nodes[n].name);
    return fmt::format("{}", fmt::join(out, " "));
  }
  void see(const Action& action) {
    if (const auto* record = std::get_if<Record>(&action)) return see(record->entry.event);
    std::string order;
    if (const auto* clear = std::get_if<ClearAll>(&action); clear && all_)
      order = fmt::format("all: end ranks older than attempt {}", clear->attempt);
    else if (const auto* start = std::get_if<Launch>(&action))
      order = fmt::format("{}: start attempt {}{}", names(start->placement), start->attempt,
                          start->from.trusted_step < 0
                              ? ""
                              : fmt::format(" from step {} or before", start->from.trusted_step));
    else if (const auto* tell = std::get_if<TellRanks>(&action))
      order = fmt::format("ranks: save{}", tell->what.stop ? " and end" : "");
    else if (const auto* hold = std::get_if<PauseRanks>(&action))
      order = hold->on ? "ranks: hold" : "ranks: go on";
    else if (const auto* dump = std::get_if<DumpRank>(&action))
      order = fmt::format("{}: tell the stacks of rank {}", names({dump->node}), dump->rank);
    else if (const auto* finish = std::get_if<FinishRun>(&action))
      order = fmt::format("all: the run is over, exit code {}", finish->exit_code);
    else if (const auto* resignation = std::get_if<Resign>(&action))
      return show("the leader resigns: " + resignation->why);
    if (!order.empty()) show("-> " + order);
  }
  void see(const Event& event) {
    const std::string words = report::in_words(event), kind = kind_of(event);
    json fields = to_json(LogEntry{{}, event});
    if (kind == "pace" || (!all_ && (words.empty() || in_its_time.contains(kind)))) return;
    if (words.empty()) {
      for (const char* key : {"event", "schema_version", "seq", "term", "time", "unix"}) fields.erase(key);
      return show(kind + " " + fields.dump());
    }
    std::vector<std::string> facts;
    if (const auto found = fields_shown.find(kind); found != fields_shown.end())
      for (const auto& key : found->second)
        if (const json value = fields.value(key, json()); !value.is_null() && value != "" && value != false &&
                                                          value != -1 &&
                                                          !(value.is_number_float() && value == 0.0))
          facts.push_back(value.is_number_float()
                              ? fmt::format("{}={:.2f}", key, value.get<double>())
                              : key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
    show(facts.empty() ? words : fmt::format("{} [{}]", words, fmt::join(facts, " ")));
    const auto* ended = std::get_if<events::AttemptEnded>(&event);
    for (std::size_t i = 1; ended && i < ended->evidence.size(); ++i) show("  and " + ended->evidence[i]);
    if (ended && !ended->advice.empty() && ended->cause != "node lost") show("  advice: " + ended->advice);
  }
  RunState state() const { return c_->leader ? c_->leader->state() : c_->replayed(); }
  /// How the run stands, but for its steps.
  std::string standing() const {
    const RunState s = state();
    std::string line = c_->exit_code ? fmt::format("over with {}", *c_->exit_code)
                       : c_->leader  ? name_of(c_->stage())
                                     : "no leader";
    if (c_->leader && !c_->exit_code && c_->leader->world() != 2 * c_->setup.slots)
      line += fmt::format(" with {} of {} ranks", c_->leader->world(), 2 * c_->setup.slots);
    if (!s.attempts.empty() && !s.attempts.back().waits_for.empty()) line += ", waits for old ranks";
    if (s.paused) line += ", paused";
    if (s.drain) line += s.drain->what.stop ? ", told to end" : ", told to save";
    for (const auto& [what, nodes] :
         {std::pair("lost", s.lost), std::pair("evicted", s.evicted), std::pair("suspect", s.suspects)})
      if (!nodes.empty()) line += fmt::format(", {} {}", what, fmt::join(nodes, " "));
    for (const auto& [node, count] : s.failures) line += fmt::format(", {} failed {}x", node, count);
    return fmt::format("{}: attempt {}", line, s.attempts.empty() ? 0 : s.attempts.back().number);
  }

  // --- what commands do

  void begin(Words& words) {
    all_ = false;
    c_ = std::make_unique<FakeCluster>(shape_of(words, all_));
    c_->on_action = [this](const Action& action) { see(action); };
  }
  void training(Words& words) {
    begin(words);
    if (!c_->training(1)) throw Mistake("it does not train within 20 s");
    out_.clear();
  }
  int node(const std::string& name) {
    for (int n = 0; n < static_cast<int>(c_->agents.size()); ++n)
      if (c_->roster.nodes[n].name == name) return n;
    throw Mistake("no such node: " + name);
  }
  std::vector<int> nodes(Words& words) {
    std::vector<int> out;
    for (const auto& name : Words::list(words.take("a node"))) out.push_back(node(name));
    return out;
  }
  void each_node(Words& words, const std::function<void(int)>& what) {
    for (const int n : nodes(words)) what(n);
  }
  Supervisor& leader() {
    if (!c_->leader) throw Mistake("the run has no leader now");
    return *c_->leader;
  }
  void until(Words& words) {
    const std::string what = words.take("what to wait for");
    std::function<bool()> there;
    if (what == "over") {
      there = [&] { return c_->exit_code.has_value(); };
    } else if (what == "training" || what == "attempt" || what == "step") {
      const int number = words.integer("a number");
      there = [this, what, number] {
        if (what == "step") return c_->reached >= number;
        return c_->leader && c_->leader->attempt() == number &&
               (what == "attempt" || c_->leader->state().attempts.back().first_step_at);
      };
    } else {
      std::map<std::string, Stage> named;
      for (const Stage s : {Stage::gathering, Stage::clearing, Stage::starting, Stage::running})
        named[name_of(s)] = s;
      there = [this, stage = words.one_of(named, what)] { return c_->stage() == stage; };
    }
    if (!c_->until(there, 700)) throw Mistake("not within 700 s; it is " + standing());
  }
  void agent(Words& words) {
    using Agent = FakeCluster::Agent;
    static const std::map<std::string, bool Agent::*> flags = {
        {"up", &Agent::up},         {"beats", &Agent::beats},   {"kernel_answers", &Agent::kernel_answers},
        {"clears", &Agent::clears}, {"starts", &Agent::starts}, {"dumps", &Agent::dumps}};
    const auto which = nodes(words);
    do {
      const auto [key, value] = words.option();
      for (const int n : which) c_->agent(n).*words.one_of(flags, key) = words.yes(value);
    } while (words.any());
  }
  void rank(Words& words) {
    const std::string numbers = words.take("a rank"), what = words.take("what the rank does");
    const int status = what == "hangs" ? 0 : words.integer("an exit code");
    const std::string why = what == "fails" ? words.rest() : "";
    for (const auto& word : Words::list(numbers)) {
      const int number = static_cast<int>(words.number(word));
      FakeCluster::Rank& r = c_->rank(number);
      if (what != "hangs" && what != "ends" && what != "fails")
        throw Mistake(fmt::format("a rank hangs, ends or fails, and does not '{}'", what));
      if (what == "fails")
        leader().rank_failed(leader().placement().at(number / 2), {number, r.attempt, status, why});
      if (what == "hangs")
        r.hangs = true;
      else
        c_->end_rank(number, status);
    }
  }
  void sign(Words& words) {
    const int n = node(words.take("a node"));
    const std::string kind = words.take("a sign");
    const int code = words.integer("a code");
    leader().node_signs(n, {{{kind, -1, code, 0, words.rest(), leader().attempt()}}});
  }
  void health(Words& words) {
    const auto which = nodes(words);
    const auto fitness = control::fitness_called(words.take("a fitness"));
    if (!fitness) throw Mistake("no such fitness");
    const std::string check = words.take("a check"), says = words.rest();
    for (const int n : which)
      c_->agent(n).health = control::NodeHealth{*fitness, check + ": " + says, "", {{check, *fitness, says}}};
  }
  /// For 60 steps, or until the attempt ends, one rank computes so many times as long as the others.
  void compute(Words& words) {
    const int slow = words.integer("a rank"), attempt = leader().attempt();
    const double times = words.number(words.take("how many times"), "x");
    for (int step = 0; step < 60 && leader().attempt() == attempt; ++step) {
      for (int slot = 0; slot < leader().world() / 2; ++slot) {
        const int n = leader().placement()[slot];
        control::Heartbeat beat{c_->roster.nodes[n].name, attempt, {}};
        for (const int r : {2 * slot, 2 * slot + 1})
          beat.ranks.push_back({r, attempt, c_->reached, control::Phase::forward,
                                r == slow ? std::int64_t(1e5 * times) : 100000});
        leader().heartbeat(n, beat);
      }
      c_->run(0.1);
    }
  }
  void doubt(Words& words) {
    const int step = words.integer("the last right step");
    const std::string check = words.take("a check");
    std::vector<int> accused;
    while (words.any()) accused.push_back(words.integer("a rank"));
    leader().rank_doubt(0, {0, leader().attempt(), step, accused, check, "digests differ"});
  }
  void lead(Words& words) {
    const std::string what = words.take("a node");
    if (what == "lost") return c_->lose_leader();
    if (what == "stopped") return c_->leader_stopped_for(words.seconds());
    c_->new_leader(node(what));
  }
  void order(Words& words) {
    using enum control::Order::Verb;
    const std::map<std::string, control::Order::Verb> verbs = {
        {"save", save}, {"stop", stop}, {"pause", pause}, {"resume", resume}, {"evict", evict}};
    const auto verb = words.one_of(verbs, words.take("an order"));
    const auto answer = leader().order({"7", verb, words.rest(), "mia@login"});
    show((answer.taken ? "taken: " : "refused: ") + answer.says);
    c_->run(0.1);
  }
  /// The whole allocation starts again, as the next job of the run.
  void next_job(Words& words) {
    c_->exit_code.reset();
    c_->roster.job = words.take("a job");
    for (int n = 0; n < static_cast<int>(c_->agents.size()); ++n) c_->kill(n), c_->revive(n);
    c_->new_leader(c_->roster.batch_host);
  }
  void result(Words&) {
    const json result = c_->result();
    const auto text = [](const json& field) {
      return field.is_string() ? field.get<std::string>() : field.dump();
    };
    for (const json& a : result["attempts"]) {
      std::vector<std::string> facts;
      for (const char* key :
           {"cause", "node", "last_step", "lost_steps", "detected_s", "decided_s", "recovered_s"})
        if (const json& field = a[key]; a["cause"] != "" && field != "" && !field.is_null())
          facts.push_back(fmt::format(
              "{} {}", key,
              field.is_number_float() ? fmt::format("{:.2f}", field.get<double>()) : text(field)));
      const json& from = a["restored_from"];
      out_ += fmt::format("         attempt {}", text(a["attempt"]));
      if (!from.is_null()) out_ += fmt::format(" from step {} ({})", text(from["step"]), text(from["level"]));
      out_ += fmt::format("{}{}\n", facts.empty() ? "" : ": ", fmt::join(facts, ", "));
    }
    if (!result["final_step"].is_null())
      out_ += fmt::format("         final step {}, {} tokens, loss {}, digest {}, goodput {:.2f}\n",
                          text(result["final_step"]), text(result["tokens"]), text(result["final_loss"]),
                          text(result["state_digest"]), result["goodput"].get<double>());
    EXPECT_EQ(result, result_of(leader().state())) << "the log and the leader disagree";
  }

  const std::map<std::string, std::function<void(Words&)>> commands_ = {
      {"run", [this](Words& w) { begin(w); }},
      {"training",
       [this](Words& w) { training(w); }},  ///< the same, after its first step; its start is not shown
      {"wait", [this](Words& w) { c_->run(w.seconds()); }},
      {"until", [this](Words& w) { until(w); }},
      {"kill", [this](Words& w) { each_node(w, [&](int n) { c_->kill(n); }); }},
      {"revive", [this](Words& w) { each_node(w, [&](int n) { c_->revive(n); }); }},
      {"cut",
       [this](Words& w) { each_node(w, [&](int n) { c_->cut(n); }); }},  ///< its link; `revive` repairs it
      {"restart", [this](Words& w) { each_node(w, [&](int n) { c_->restart_agent(n); }); }},
      {"agent", [this](Words& w) { agent(w); }},
      {"rank", [this](Words& w) { rank(w); }},
      {"sign", [this](Words& w) { sign(w); }},
      {"health", [this](Words& w) { health(w); }},
      {"forget", [this](Words& w) { each_node(w, [&](int n) { c_->agent(n).ranks.clear(); }); }},
      {"processes",
       [this](Words& w) {
         each_node(w, [&](int n) { leader().processes_left(n, {leader().attempt(), w.rest()}); });
       }},
      {"compute", [this](Words& w) { compute(w); }},
      {"doubt", [this](Words& w) { doubt(w); }},
      {"leader", [this](Words& w) { lead(w); }},
      {"signal",
       [this](Words& w) {
         leader().drain({true, w.rest()});
       }},
      {"order", [this](Words& w) { order(w); }},
      {"job", [this](Words& w) { next_job(w); }},
      {"result", [this](Words& w) { result(w); }}};
  std::unique_ptr<FakeCluster> c_;
  std::string out_, standing_;
  bool all_ = false;  ///< also what follows from each plan in its time
};

/// Plays a file, and compares what stands under each command, up to the first difference.
void play(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  const bool update = env::get("HOLDFAST_UPDATE_GOLDEN").has_value();
  std::string written;
  Scenario scenario;
  for (std::size_t at = 0; at < lines.size();) {
    const std::string& line = lines[at++];
    written += line + "\n";
    if (line.empty() || line.starts_with('#')) continue;
    const int number = static_cast<int>(at);
    std::string wanted, given;
    while (at < lines.size() && lines[at].starts_with("  ")) wanted += lines[at++] + "\n";
    try {
      given = scenario.carry_out(line);
    } catch (const std::exception& e) {
      ADD_FAILURE_AT(file.c_str(), number) << line << "\n" << e.what();
      return;
    }
    written += given;
    if (update || given == wanted) continue;
    EXPECT_EQ(wanted, given) << file.string() << ":" << number << ": " << line
                             << "\nIf this is meant, run scripts/golden_update.sh and read the difference";
    return;
  }
  if (update) std::ofstream(file) << written;
}

TEST(Scenario, SaysWhatIsWrongWithALine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"kill n1", "no run has begun"},           {"run nodes=three", "'three' is no number"},
      {"run node=3", "'node' is none of "},      {"run supervise.step=3", "supervise.step_s"},
      {"training nodes=3 spares=2", ""},         {"explode", "'explode' is none of "},
      {"kill n9", "no such node: n9"},           {"wait 3", "with the unit s"},
      {"rank 6 ends 1", "no such node or rank"}, {"rank 1 sleeps 1", "does not 'sleeps'"},
      {"agent n1 clears", "is not KEY=VALUE"},   {"kill n1 n2", "'n2' is more than the command takes"}};
  Scenario scenario;
  for (const auto& [line, wrong] : cases) try {
      scenario.carry_out(line);
      EXPECT_EQ(wrong, "") << line;
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find(wrong), std::string::npos) << line << ": " << e.what();
      EXPECT_NE(wrong, "") << line << ": " << e.what();
    }
}

TEST(ScenarioGolden, FilesSayWhatTheSupervisorDoes) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(HOLDFAST_SOURCE_DIR "/tests/launcher/supervise/scenarios")) {
    play(entry.path());
    ++files;
  }
  EXPECT_GE(files, 20);
}

}  // namespace
}  // namespace holdfast::launcher
