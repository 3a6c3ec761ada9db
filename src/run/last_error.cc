#include "src/run/last_error.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <vector>

#include "src/base/format.h"

namespace ttrace {
namespace {

constexpr size_t kLongestError = 400;

// "[rank3]: text" and "[default3]:text" -> ("rank 3", "text").
struct Line {
  std::string rank;  // "" where the line has no prefix
  std::string_view text;
};

Line TakePrefix(std::string_view line) {
  for (const std::string_view word : {"[rank", "[default"}) {
    if (!line.starts_with(word)) continue;
    size_t at = word.size();
    while (at < line.size() && std::isdigit(line[at]) != 0) ++at;
    if (at == word.size() || line.substr(at, 2) != "]:") continue;
    const std::string rank(line.substr(word.size(), at - word.size()));
    line.remove_prefix(at + 2);
    if (line.starts_with(' ')) line.remove_prefix(1);
    return {"rank " + rank, line};
  }
  return {"", line};
}

// Whether `text` is "name" or "name: message" with a dotted Python name.
bool IsException(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  return !name.empty() && std::isdigit(name[0]) == 0 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.';
         });
}

// One-line failures of those that never came to a traceback.
bool IsPlainFailure(std::string_view text) {
  // The last is capture, which may have had to end the process.
  for (const std::string_view start :
       {"SyntaxError: ", "IndentationError: ", "TabError: ",
        "Fatal Python error: ", "ttrace: rank "}) {
    if (text.starts_with(start)) return true;
  }
  for (const std::string_view part :
       {": error: ", ": can't open file ", ": No module named ",
        ") received by PID "}) {
    if (text.find(part) != std::string_view::npos) return true;
  }
  return text.ends_with(": not found") || text.ends_with(": Permission denied");
}

struct Candidate {
  size_t order = 0;  // its line, counted from 1
  std::string rank;
  std::string text;
  bool traceback = false;
};

// Reads the output line by line; the ranks' lines may be interleaved.
class Search {
 public:
  void Add(std::string_view raw) {
    ++order_;
    const Line line = TakePrefix(raw);
    bool& inside = inside_[line.rank];
    if (line.text.starts_with("Traceback (most recent call last)")) {
      inside = true;
      return;
    }
    if (inside) {
      // Frames are indented, and so are the carets below them.
      if (line.text.empty() || line.text.front() == ' ') return;
      inside = false;
      if (IsException(line.text)) return Keep(line, true);
    }
    constexpr std::string_view kWhat = "  what():  ";
    if (line.text.starts_with(kWhat)) {
      return Keep({line.rank, line.text.substr(kWhat.size())}, true);
    }
    if (IsPlainFailure(line.text)) Keep(line, false);
  }

  // The first failure of a rank that is no consequence; else the last of the
  // processes without a number, a traceback before anything else.
  std::optional<Candidate> Best() const {
    std::optional<Candidate> best;
    for (const auto& [key, candidate] : last_) {
      if (!best || Better(candidate, *best)) best = candidate;
    }
    return best;
  }

 private:
  void Keep(const Line& line, bool traceback) {
    std::string_view text = line.text;
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    Candidate candidate{order_, line.rank, std::string(text), traceback};
    auto [at, added] = last_.try_emplace({line.rank, traceback}, candidate);
    // What a process says after its own failure may be a consequence.
    if (!added &&
        (IsConsequence(at->second.text) || !IsConsequence(candidate.text))) {
      at->second = candidate;
    }
  }

  static int Weight(const Candidate& c) {
    return (IsConsequence(c.text) ? 0 : 4) + (c.traceback ? 2 : 0) +
           (c.rank.empty() ? 0 : 1);
  }
  static bool Better(const Candidate& a, const Candidate& b) {
    if (Weight(a) != Weight(b)) return Weight(a) > Weight(b);
    return a.order < b.order;
  }

  size_t order_ = 0;
  std::map<std::string, bool> inside_;
  std::map<std::pair<std::string, bool>, Candidate> last_;
};

template <typename Function>
void ForEachLine(std::string_view output, const Function& function) {
  while (!output.empty()) {
    const size_t end = output.find('\n');
    std::string_view line = output.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    function(line);
    if (end == std::string_view::npos) break;
    output.remove_prefix(end + 1);
  }
}

std::optional<Candidate> Find(std::string_view output) {
  Search search;
  ForEachLine(output, [&](std::string_view line) { search.Add(line); });
  return search.Best();
}

}  // namespace

bool IsConsequence(std::string_view error) {
  for (const std::string_view part :
       {"ChildFailedError", "SignalException", "CalledProcessError",
        "ProcessExitedException", "Connection closed by peer",
        "Connection reset by peer", "Broken pipe", "KeyboardInterrupt",
        "(SIGTERM) received", "failed to recv, got 0 bytes",
        "connection was likely closed"}) {
    if (error.find(part) != std::string_view::npos) return true;
  }
  return false;
}

std::string LastError(std::string_view output) {
  const std::optional<Candidate> best = Find(output);
  if (!best) return "";
  const std::string text = ShortenMiddle(Printable(best->text), kLongestError);
  return best->rank.empty() ? text : best->rank + ": " + text;
}

std::vector<std::string> LinesOfLastError(std::string_view output, int lines) {
  const std::optional<Candidate> best = Find(output);
  std::vector<std::string> result;
  if (!best) return result;
  ForEachLine(output, [&](std::string_view line) {
    if (result.size() < best->order) result.emplace_back(line);
  });
  std::erase_if(result, [&](const std::string& line) {
    return TakePrefix(line).rank != best->rank;
  });
  const auto keep = static_cast<size_t>(lines);
  if (result.size() > keep) {
    result.erase(result.begin(), result.end() - lines);
  }
  for (std::string& line : result) line = Printable(line);
  return result;
}

}  // namespace ttrace
