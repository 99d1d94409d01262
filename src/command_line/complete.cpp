// Three functions walk through the words from left to right, and step down to a verb where a word names one.
// They do so without CLI11's parser, and do not change the App.
//
// - complete() is asked by a shell. place_of() says where the last word stands: as the value of an option, as
//   the n-th argument of a verb, or behind "--", where nothing is offered. possible() lists what may stand
//   there, and what does not begin as typed is dropped.
// - refuse_unknown_verb() runs before the parser, and names the nearest verb.
// - usage_error() runs after the parser has refused the words, and makes one Error of its exception.
//
// The values of options and arguments, such as the names of partitions, are known to the caller's ValuesOf
// alone.
#include "src/command_line/complete.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/command_line/help.hpp"

namespace holdfast::command_line {
namespace {

/// The option that is spelled so, as a long or a short one.
const CLI::Option* option_called(const CLI::App& app, const std::string& spelled) {
  if (!spelled.starts_with('-')) return nullptr;
  const auto options = app.get_options(
      [&](const CLI::Option* option) { return option->nonpositional() && option->check_name(spelled); });
  return options.empty() ? nullptr : options.front();
}

const CLI::App* verb_called(const CLI::App& app, const std::string& name) {
  const auto verbs = app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == name; });
  return verbs.empty() ? nullptr : verbs.front();
}

bool takes_value(const CLI::Option* option) { return option && option->get_items_expected_max() > 0; }

/// Where the last word stands: below which verb, and what it is.
struct Place {
  const CLI::App* verb;
  const CLI::Option* value_of = nullptr;
  std::size_t arguments = 0;  ///< that stand before it
  bool foreign = false;       ///< behind "--": words for another program
};

Place place_of(const CLI::App& app, const std::vector<std::string>& words) {
  Place here{&app};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    here.value_of = nullptr;
    if (word == "--") {
      here.foreign = true;
      return here;
    }
    if (const CLI::Option* option = option_called(*here.verb, word)) {
      if (!takes_value(option)) continue;
      if (i + 2 == words.size()) here.value_of = option;
      ++i;  // its value
    } else if (word.starts_with('-')) {
      continue;
    } else if (const CLI::App* verb = verb_called(*here.verb, word)) {
      here = {verb};
    } else {
      ++here.arguments;
    }
  }
  return here;
}

/// Those that users may see.
std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!verb->get_group().empty()) out.push_back(verb->get_name());
  return out;
}

void add_verbs(const CLI::App& app, Candidates& out) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!verb->get_group().empty()) out.words.push_back({verb->get_name(), verb->get_description()});
}

void add_options(const CLI::App& app, Candidates& out) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional() || option->get_group().empty()) continue;
    for (const auto& name : option->get_lnames())
      out.words.push_back({"--" + name, option->get_description()});
    if (option->get_lnames().empty())
      for (const auto& name : option->get_snames())
        out.words.push_back({"-" + name, option->get_description()});
  }
}

/// The argument that would stand behind `before` others; the last one may be repeated.
const CLI::Option* argument_at(const CLI::App& app, std::size_t before) {
  const auto arguments = app.get_options([](const CLI::Option* option) { return option->get_positional(); });
  if (arguments.empty()) return nullptr;
  if (before < arguments.size()) return arguments[before];
  return arguments.back()->get_expected_max() > 1 ? arguments.back() : nullptr;
}

std::string type_of(const CLI::Option* option) {
  const std::string type = option->get_type_name();
  return type.empty() || type == "TEXT" ? option->get_single_name() : type;
}

Candidates possible(const CLI::App& app, const std::vector<std::string>& words, const ValuesOf& values,
                    std::string& typed) {
  typed = words.empty() ? "" : words.back();
  const Place here = place_of(app, words);
  if (here.foreign) return {};
  if (here.value_of) return values(type_of(here.value_of));
  if (const auto equals = typed.find('='); typed.starts_with("--") && equals != std::string::npos) {
    const CLI::Option* option = option_called(*here.verb, typed.substr(0, equals));
    if (!takes_value(option)) return {};
    Candidates out = values(type_of(option));
    for (auto& candidate : out.words) candidate.word = typed.substr(0, equals + 1) + candidate.word;
    return out;
  }
  Candidates out;
  if (typed.starts_with('-')) {
    add_options(*here.verb, out);
    return out;
  }
  if (const CLI::Option* argument = argument_at(*here.verb, here.arguments)) out = values(type_of(argument));
  add_verbs(*here.verb, out);
  return out;
}

}  // namespace

Candidates complete(const CLI::App& app, const std::vector<std::string>& words, const ValuesOf& values) {
  std::string typed;
  Candidates out = possible(app, words, values, typed);
  std::erase_if(out.words, [&](const Candidate& candidate) { return !candidate.word.starts_with(typed); });
  return out;
}

void refuse_unknown_verb(const CLI::App& app, const std::vector<std::string>& words) {
  std::string called = "holdfast";
  const CLI::App* at = &app;
  std::size_t arguments = 0;
  std::string taken;  // a verb's name that the parser takes for an argument, as that must stand before verbs
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto names = verbs_of(*at);
    if (names.empty() || at->get_prefix_command() || word == "--") return;
    if (word.starts_with('-')) {
      const CLI::Option* option = option_called(*at, word);
      if (option && option == at->get_help_ptr()) return;
      if (takes_value(option)) ++i;
    } else if (const CLI::Option* argument = argument_at(*at, arguments);
               argument && argument->get_required()) {
      ++arguments;
      if (verb_called(*at, word)) taken = word;
    } else if (const CLI::App* verb = verb_called(*at, word)) {
      at = verb;
      called += " " + word;
      arguments = 0;
      taken.clear();
    } else if (!argument) {
      std::string nearest = nearest_name(word, names);
      if (!taken.empty()) {
        nearest = word + " " + taken;
        for (std::size_t k = i + 1; k < words.size(); ++k) nearest += " " + words[k];
      }
      throw Error(Exit::usage,
                  fmt::format("there is no verb '{}'{}", word, at == &app ? "" : " of '" + called + "'"), "",
                  nearest.empty() ? fmt::format("'{} --help' lists the verbs", called)
                                  : fmt::format("Did you mean '{} {}'?", called, nearest));
    } else {
      ++arguments;
    }
  }
  if (!taken.empty())
    throw Error(Exit::usage,
                fmt::format("{} is required before '{}'", argument_at(*at, 0)->get_name(), taken), "",
                fmt::format("'{} --help' says more", called));
}

Error usage_error(const CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
  std::string called = "holdfast";
  const CLI::App* at = &app;
  std::string unknown;
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::string name = word.substr(0, word.find('='));
    if (const CLI::App* verb = verb_called(*at, word); verb && !at->get_prefix_command()) {
      at = verb;
      called += " " + word;
    } else if (unknown.empty() && word.size() > 1 && word.starts_with('-') && !option_called(*at, name)) {
      unknown = name;
    }
  }
  const std::string help = fmt::format("'{} --help' says more", called);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr)
    return {Exit::usage, parse_error(error), "", help};
  if (unknown.empty()) {
    const std::string what = error.what();
    return {Exit::usage, fmt::format("'{}' takes no more arguments", called),
            what.substr(what.rfind(": ") + 2) + " was given", help};
  }
  Candidates options;
  add_options(*at, options);
  std::vector<std::string> names;
  for (const Candidate& option : options.words) names.push_back(option.word);
  const std::string nearest = nearest_name(unknown, names);
  const bool near = !nearest.empty() && edit_distance(unknown, nearest) <= unknown.size() / 3;
  return {Exit::usage, fmt::format("'{}' has no option {}", called, unknown), "",
          near ? fmt::format("Did you mean {}?", nearest) : help};
}

std::string lines_of(const Candidates& candidates) {
  std::string out;
  for (const auto& candidate : candidates.words) {
    const std::string meaning = candidate.meaning.substr(0, candidate.meaning.find('\n'));
    out += candidate.word + (meaning.empty() ? "" : "\t" + meaning) + "\n";
  }
  if (candidates.paths == Paths::files) out += ":files\n";
  if (candidates.paths == Paths::folders) out += ":folders\n";
  return out;
}

}  // namespace holdfast::command_line
