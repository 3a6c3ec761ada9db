#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "src/align/collective.h"
#include "src/base/format.h"
#include "src/cli/inspect.h"
#include "src/report/page.h"

namespace ttrace {
namespace {

// Layers and experts are alike: "decoder.layers.*.mlp.linear_fc2". Only whole
// words that are numbers, so that fc1 and fc2 stay two.
std::string Pattern(const std::string& fqn) {
  std::string out;
  size_t begin = 0;
  while (begin <= fqn.size()) {
    const size_t end = std::min(fqn.find('.', begin), fqn.size());
    const std::string word = fqn.substr(begin, end - begin);
    const bool number =
        !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
          return c >= '0' && c <= '9';
        });
    out += (begin > 0 ? "." : "") + (number ? "*" : word);
    begin = end + 1;
  }
  return out;
}

struct Alike {
  int64_t calls = 0;
  std::set<int64_t> elements;
  std::set<std::vector<int>> groups;
  std::set<std::string> dtypes;
  int64_t parameters = 0;  // the most of one call
  size_t position = 0;     // of the first, so that rows are in their order
};

std::string Groups(const std::set<std::vector<int>>& groups) {
  constexpr size_t kGroups = 4;
  constexpr size_t kMembers = 8;
  std::string out;
  size_t shown = 0;
  for (const std::vector<int>& group : groups) {
    if (shown++ == kGroups) return out + " ...";
    const size_t n = std::min(kMembers, group.size());
    out += fmt::format(
        "{}{{{}{}}}", out.empty() ? "" : " ",
        fmt::join(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(n),
                  ","),
        n < group.size() ? fmt::format(",... {}", group.size()) : "");
  }
  return out;
}

std::string Span(const std::set<int64_t>& numbers) {
  const std::string low = FormatCount(*numbers.begin());
  return numbers.size() == 1 ? low : low + "-" + FormatCount(*numbers.rbegin());
}

}  // namespace

std::string DescribeCollectives(const Trace& trace,
                                const TerminalOptions& terminal) {
  const CollectiveLog log = ReadCollectives(trace);
  // Iterations are alike too: calls are those of one rank in one iteration.
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Key, Alike> rows;
  std::map<Key, std::map<std::pair<int, int>, int64_t>> calls;
  for (const Collective& c : log.seen) {
    const Key key{c.phase, Pattern(c.fqn), c.kind, c.op};
    Alike& row = rows.try_emplace(key).first->second;
    if (row.elements.empty()) row.position = rows.size();
    row.elements.insert(c.elements);
    row.groups.insert(c.members);
    if (!c.dtype.empty()) row.dtypes.insert(c.dtype);
    row.parameters =
        std::max(row.parameters, static_cast<int64_t>(c.parameters.size()));
    const int64_t n = ++calls[key][{c.rank, c.iteration}];
    row.calls = std::max(row.calls, n);
  }
  std::vector<std::pair<Key, Alike>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.position < b.second.position;
  });

  Page page(terminal.width, terminal.color);
  page.Section("COLLECTIVES");
  if (log.complete.empty() && log.seen.empty()) {
    page.Text("this trace was recorded without them");
    return page.Take();
  }
  page.Text(fmt::format(
      "{} by {} ranks; calls are of one rank in one iteration, the most",
      FormatCount(static_cast<int64_t>(log.seen.size())),
      trace.ranks().size()));
  for (const auto& [phase, reason] : log.not_seen) {
    page.Text(fmt::format("not seen in {}: {}", phase, reason),
              Tone::kDoubtful);
  }
  if (log.malformed > 0) {
    page.Text(fmt::format("{} notes are unreadable", log.malformed),
              Tone::kDoubtful);
  }
  std::vector<std::vector<std::string>> table = {
      {"phase", "kind", "calls", "elements", "groups", "module"}};
  for (const auto& [key, row] : sorted) {
    const auto& [phase, fqn, kind, op] = key;
    std::string module = Printable(fqn);
    if (row.parameters > 0) {
      module +=
          fmt::format("{}gradients of {} parameters",
                      module.empty() ? "" : ", ", FormatCount(row.parameters));
    }
    table.push_back(
        {phase.empty() ? "-" : phase,
         Printable(op.empty() ? kind : kind + " " + op), FormatCount(row.calls),
         fmt::format("{} {}", Span(row.elements),
                     Printable(fmt::format("{}", fmt::join(row.dtypes, ",")))),
         Groups(row.groups), module.empty() ? "-" : module});
  }
  page.Section("");
  page.Table(table);
  return page.Take();
}

}  // namespace ttrace
