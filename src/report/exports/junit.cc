// JUnit XML: https://github.com/testmoapp/junitxml describes what readers agree
// on, Jenkins' junit-10.xsd what one of them checks.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "src/base/format.h"
#include "src/report/exports/exports.h"
#include "src/report/exports/place_words.h"

namespace ttrace {
namespace {

// As XML takes it, in text and between quotes. Of what Printable lets pass two
// characters are none of XML's.
std::string Xml(const std::string& text) {
  static const std::map<char, std::string_view> kEntities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string out;
  const std::string printable = Printable(text);
  for (size_t i = 0; i < printable.size(); ++i) {
    const std::string_view three = std::string_view(printable).substr(i, 3);
    if (three == "\xEF\xBF\xBE" || three == "\xEF\xBF\xBF") {
      out += three.back() == '\xBE' ? "\\u{fffe}" : "\\u{ffff}";
      i += 2;
      continue;
    }
    const auto entity = kEntities.find(printable[i]);
    if (entity == kEntities.end()) {
      out += printable[i];
    } else {
      out += entity->second;
    }
  }
  return out;
}

struct Case {
  std::string name;
  std::string outcome;  // the element inside; empty: it passed
  enum class Kind { kPassed, kFailed, kError, kSkipped } kind = Kind::kPassed;
};

struct Suite {
  std::string name;
  std::vector<Case> cases;
};

std::string Element(const char* element, const std::string& type,
                    const std::string& message,
                    const std::vector<std::string>& lines) {
  std::string out = fmt::format("<{} type=\"{}\" message=\"{}\">", element,
                                Xml(type), Xml(message));
  for (const std::string& line : lines) out += "\n" + Xml(line);
  return out + fmt::format("</{}>", element);
}

std::vector<std::string> TextOfPlace(const ResultFile::Place& place) {
  std::vector<std::string> lines = {PlaceHeading(place)};
  for (std::string& line : PlaceLines(place)) lines.push_back(std::move(line));
  return lines;
}

Case VerdictCase(const ResultFile& result) {
  Case out;
  out.name = "the runs are the same computation";
  std::vector<std::string> lines;
  for (const ResultFile::Place& place : result.culprits) {
    for (std::string& line : TextOfPlace(place))
      lines.push_back(std::move(line));
    lines.emplace_back();
  }
  for (const ResultFile::Note& note : result.notes) {
    lines.push_back("note: " + note.text);
  }
  if (result.exit_code == 1) {
    out.kind = Case::Kind::kFailed;
    out.outcome = Element("failure", result.verdict, result.reason, lines);
  } else if (result.exit_code != 0) {
    out.kind = Case::Kind::kError;
    out.outcome = Element("error", result.verdict, result.reason, lines);
  }
  return out;
}

// The tensors of one role in one layer group.
struct Group {
  int64_t tensors = 0;
  int64_t judged = 0;
  int64_t diverged = 0;
  std::string first_diverged;
  int64_t cause = -1;        // of that: index of the culprit that it is laid to
  std::string first_reason;  // of one that is not judged
  std::vector<const ResultFile::Place*> culprits;  // earliest first

  void Add(const ResultFile::Tensor& tensor) {
    ++tensors;
    const bool out =
        tensor.verdict == "diverged" ||
        (tensor.isolated && tensor.isolated->verdict == "diverged");
    if (out && ++diverged == 1) {
      first_diverged = tensor.fqn;
      cause = tensor.culprit;
    }
    const bool open =
        tensor.verdict == "not_checkable" || tensor.verdict == "unmatched";
    if (!open ||
        (tensor.isolated && tensor.isolated->verdict != "not_checkable")) {
      ++judged;
    } else if (first_reason.empty()) {
      first_reason = tensor.reason;
    }
  }
};

// Results of older versions do not say it of each tensor.
std::string CauseWords(const Group& group,
                       const std::vector<ResultFile::Place>& places) {
  if (places.empty()) return "no culprit was named";
  const auto at = static_cast<size_t>(group.cause);
  return group.cause >= 0 && at < places.size()
             ? "downstream of " + PlaceHeading(places[at])
             : "downstream of a culprit";
}

Case GroupCase(const std::string& name, const Group& group,
               const std::vector<ResultFile::Place>& places) {
  Case out;
  out.name = PlaceName(name);
  if (!group.culprits.empty()) {
    const ResultFile::Place& place = *group.culprits.front();
    std::vector<std::string> lines = PlaceLines(place);
    for (size_t i = 1; i < group.culprits.size(); ++i) {
      for (std::string& line : TextOfPlace(*group.culprits[i])) {
        lines.push_back(std::move(line));
      }
    }
    out.kind = Case::Kind::kFailed;
    out.outcome =
        Element("failure",
                place.classes.empty() ? "no class" : place.classes.front().name,
                PlaceHeading(place), lines);
  } else if (group.diverged > 0) {
    out.kind = Case::Kind::kFailed;
    out.outcome = Element(
        "failure", "downstream",
        fmt::format("{} of {} tensors are out of bounds, first that of {}: "
                    "{}",
                    group.diverged, group.tensors,
                    PlaceName(group.first_diverged), CauseWords(group, places)),
        {});
  } else if (group.judged == 0) {
    out.kind = Case::Kind::kSkipped;
    out.outcome =
        fmt::format("<skipped message=\"{}\"/>",
                    Xml(fmt::format("none of {} tensors could be judged: {}",
                                    group.tensors, group.first_reason)));
  }
  return out;
}

std::vector<Suite> RoleSuites(const ResultFile& result) {
  std::vector<Suite> out;
  std::vector<std::vector<std::pair<std::string, Group>>> groups;
  std::map<std::string, size_t> suites;
  std::map<std::pair<std::string, std::string>, size_t> cases;
  const auto group_of = [&](const std::string& role,
                            const std::string& fqn) -> Group& {
    const auto [suite, new_role] = suites.emplace(role, out.size());
    if (new_role) {
      out.push_back({role, {}});
      groups.emplace_back();
    }
    auto& of_role = groups[suite->second];
    const std::string name = LayerGroup(fqn);
    const auto [at, is_new] =
        cases.emplace(std::pair(role, name), of_role.size());
    if (is_new) of_role.emplace_back(name, Group());
    return of_role[at->second].second;
  };
  for (const ResultFile::Tensor& tensor : result.tensors) {
    if (!tensor.explained) group_of(tensor.role, tensor.fqn).Add(tensor);
  }
  // The first in execution order is what its group fails of.
  for (const ResultFile::Place& place : result.culprits) {
    group_of(place.role, place.fqn).culprits.push_back(&place);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    for (const auto& [name, group] : groups[i]) {
      out[i].cases.push_back(GroupCase(name, group, result.culprits));
    }
  }
  return out;
}

int64_t Count(const Suite& suite, Case::Kind kind) {
  return std::count_if(suite.cases.begin(), suite.cases.end(),
                       [&](const Case& one) { return one.kind == kind; });
}

std::string Counts(const std::vector<const Suite*>& suites, double seconds) {
  int64_t tests = 0;
  int64_t failed = 0;
  int64_t errors = 0;
  int64_t skipped = 0;
  for (const Suite* suite : suites) {
    tests += static_cast<int64_t>(suite->cases.size());
    failed += Count(*suite, Case::Kind::kFailed);
    errors += Count(*suite, Case::Kind::kError);
    skipped += Count(*suite, Case::Kind::kSkipped);
  }
  return fmt::format(
      "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" "
      "time=\"{:.3f}\"",
      tests, failed, errors, skipped, seconds);
}

}  // namespace

std::string RenderJunit(const ResultFile& result) {
  std::vector<Suite> suites = {{"verdict", {VerdictCase(result)}}};
  for (Suite& suite : RoleSuites(result)) suites.push_back(std::move(suite));
  std::vector<const Suite*> all;
  all.reserve(suites.size());
  for (const Suite& suite : suites) all.push_back(&suite);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format("<testsuites name=\"ttrace\" {}>\n",
                     Counts(all, result.seconds));
  for (const Suite& suite : suites) {
    // What is judged is judged together: the first suite has its time.
    out += fmt::format(
        "  <testsuite name=\"{}\" {}>\n", Xml(suite.name),
        Counts({&suite}, &suite == &suites.front() ? result.seconds : 0));
    for (const Case& one : suite.cases) {
      out += fmt::format("    <testcase classname=\"ttrace.{}\" name=\"{}\"",
                         Xml(suite.name), Xml(one.name));
      out += one.outcome.empty() ? "/>\n" : ">" + one.outcome + "</testcase>\n";
    }
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace ttrace
