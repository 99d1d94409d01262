#pragma once
// Text that others can write (programs, nodes, settings, SLURM, files) as a terminal may get it. One function
// says what may pass; it stands at the edges: the standard streams of the verbs (PrintableStreams), the log
// (log.hpp), and files that verbs write for people.
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace holdfast {

/// Well-formed UTF-8 without anything that a terminal obeys or that hides or moves text. U+FFFD stands for
/// what is malformed and for each control character (C0 but tab and line feed, DEL, C1) and control of the
/// direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069). A carriage return is a
/// line feed; before one it is left out.
std::string printable(std::string_view text);
/// The same on one line: tabs and line feeds are spaces.
std::string printable_line(std::string_view text);

/// While it lives, all that is written to std::cout, std::cerr and std::clog is printable(). main() of a
/// program with verbs has one.
class PrintableStreams {
 public:
  PrintableStreams();
  ~PrintableStreams();
  PrintableStreams(const PrintableStreams&) = delete;
  PrintableStreams& operator=(const PrintableStreams&) = delete;

 private:
  struct Filter;
  std::unique_ptr<Filter> out_, err_, log_;
};

/// From now on std::cout carries data, not words: the text of a program or a model. A pipe or a file gets the
/// bytes as they are, a terminal gets them printable() all the same.
void write_data_from_now_on();

}  // namespace holdfast
