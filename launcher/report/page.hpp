#pragma once
// A report between facts and text: what is said, and nothing of how it looks. Its texts are plain; whoever
// writes them out escapes them. Pure.
#include <string>
#include <vector>

#include "launcher/report/facts.hpp"
#include "launcher/report/plot.hpp"

namespace holdfast::launcher::report {

struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

/// Its parts stand in this order; empty ones are left out.
struct Section {
  std::string title;
  int level = 2;  ///< 2, or 3 inside the section before it
  std::vector<std::string> paragraphs = {};
  Table table = {};
  std::vector<Plot> plots = {};
  std::vector<std::string> items = {};
  std::string folded_title = {}, folded = {};  ///< a long text that is opened on demand
};

struct Page {
  std::string title;
  std::vector<Section> sections;
};

/// Numbers of result.json are shown with as many digits as it takes to tell them from others: whole
/// seconds with two decimals, shares in per cent with two decimals.
Page page_of(const Facts& facts);
std::string html(const Page& page);
std::string markdown(const Page& page);

}  // namespace holdfast::launcher::report
