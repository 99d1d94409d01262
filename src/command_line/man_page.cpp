#include "src/command_line/man_page.hpp"

#include <fmt/format.h>

#include <sstream>

#include "src/command_line/help.hpp"

namespace holdfast::command_line {
namespace {

/// Text as troff reads it: a backslash, a hyphen, and a dot or a quote at the beginning of a line mean
/// something else there.
std::string escaped(const std::string& text) {
  std::string out;
  bool first = true;
  for (const char c : text) {
    if (first && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    first = c == '\n';
  }
  return out;
}

/// Lines that begin with a space are examples.
std::string paragraphs(const std::string& text) {
  std::string out, line;
  std::istringstream lines(text);
  bool example = false;
  while (std::getline(lines, line)) {
    const bool is_example = line.starts_with(' ');
    if (is_example != example) out += is_example ? ".EX\n" : ".EE\n";
    example = is_example;
    out += line.empty() ? ".PP\n" : escaped(line) + "\n";
  }
  return out + (example ? ".EE\n" : "");
}

std::string spelled(const CLI::Option* option) {
  std::string out;
  for (const auto& name : option->get_snames()) out += (out.empty() ? "-" : ", -") + name;
  for (const auto& name : option->get_lnames()) out += (out.empty() ? "--" : ", --") + name;
  if (option->get_type_size() != 0 && !option->get_type_name().empty()) out += " " + shown_type(*option);
  return out;
}

std::string argument_name(const CLI::Option* option) {
  const std::string type = option->get_type_name();
  return type.empty() || type == "TEXT" ? option->get_name(true) : type;
}

std::string usage(const CLI::App& verb, const std::string& called) {
  std::string out = called;
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = argument_name(option) + (option->get_expected_max() > 1 ? "..." : "");
    out += option->get_required() ? " " + name : " [" + name + "]";
  }
  if (!verb.get_subcommands([](const CLI::App*) { return true; }).empty()) out += " VERB";
  return out + " [OPTIONS]";
}

std::string options_of(const CLI::App& verb) {
  std::string out;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_group().empty() || option == verb.get_help_ptr()) continue;
    const std::string name = option->nonpositional() ? spelled(option) : argument_name(option);
    out += fmt::format(".TP\n.B {}\n{}\n", escaped(name), escaped(option->get_description()));
  }
  return out;
}

void add_verb(const CLI::App& verb, const std::string& called, std::string& out) {
  out += fmt::format(".SS \"{}\"\n{}\n", escaped(usage(verb, called)), escaped(verb.get_description()) + ".");
  out += options_of(verb);
  if (!verb.get_footer().empty()) out += ".PP\n" + paragraphs(verb.get_footer());
  for (const CLI::App* below : verb.get_subcommands([](const CLI::App*) { return true; }))
    if (!below->get_group().empty()) add_verb(*below, called + " " + below->get_name(), out);
}

}  // namespace

std::string man_verbs(const CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!verb->get_group().empty() && !verb->get_prefix_command())
      add_verb(*verb, "holdfast " + verb->get_name(), out);
  return out;
}

std::string man_page(const CLI::App& app, const std::string& version) {
  return fmt::format(
             ".TH HOLDFAST 1 \"\" \"Holdfast {}\" \"User Commands\"\n"
             ".SH NAME\nholdfast \\- launches and runs LLM training on SLURM clusters\n"
             ".SH SYNOPSIS\n.B holdfast\nVERB [OPTIONS]\n"
             ".SH DESCRIPTION\n{}\n.PP\n{}.SH OPTIONS\n{}.SH VERBS\n",
             escaped(version), escaped(app.get_description()), paragraphs(app.get_footer()),
             options_of(app)) +
         man_verbs(app);
}

}  // namespace holdfast::command_line
