// A result.json, read as any other program would read it.

#include <map>
#include <nlohmann/json.hpp>

#include "src/base/format.h"
#include "src/cli/inspect.h"
#include "src/report/page.h"
#include "src/trace/file.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

const Json& At(const Json& json, const char* key) {
  static const Json kNull;
  if (!json.is_object()) return kNull;
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

// Strings without quotes, everything else as JSON.
std::string ResultText(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  return json.is_null() ? "-" : JsonText(json);
}

std::string HeadroomText(const Json& json) {
  return json.is_number() ? FormatHeadroom(json.get<double>())
                          : ResultText(json);
}

void AddCulprit(const Json& culprit, Page& page) {
  page.Section("CULPRIT", Tone::kBad);
  page.Text(ResultText(At(culprit, "fqn")), Tone::kStrong);
  const Json& source = At(At(culprit, "source"), "text");
  if (source.is_string()) page.Verbatim(ResultText(source));
  page.Text(ResultText(At(culprit, "role")) + ", " +
            ResultText(At(culprit, "direction")) + ", " +
            ResultText(At(culprit, "stage")) + ", iteration " +
            ResultText(At(culprit, "iteration")) + ", ranks " +
            ResultText(At(culprit, "ranks")) + ", headroom " +
            HeadroomText(At(culprit, "headroom")));
  const Json& affected = At(culprit, "affected");
  page.Text("affected: " + ResultText(At(affected, "count")) + " of " +
            ResultText(At(affected, "of")));
  for (const Json& found : At(culprit, "classes")) {
    page.Text(ResultText(At(found, "class")) + ": " +
                  ResultText(At(found, "evidence")),
              Tone::kPlain, 3);
  }
}

std::string TensorCounts(const Json& tensors) {
  std::map<std::string, int64_t> verdicts;
  for (const Json& tensor : tensors)
    ++verdicts[ResultText(At(tensor, "verdict"))];
  std::string text;
  for (const auto& [verdict, count] : verdicts) {
    if (!text.empty()) text += ", ";
    text += FormatCount(count) + " " + verdict;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::string> DescribeResult(const std::string& path,
                                   const TerminalOptions& terminal) {
  // As large as a result of a very large model.
  constexpr size_t kLargest = size_t{1} << 30;
  TTRACE_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(path, kLargest, Links::kFollow));
  const Json json = ParseJson(text);
  if (!At(json, "schema").is_number_integer() ||
      !At(json, "verdict").is_string()) {
    return Error(ErrorCode::kCorrupt,
                 "'" + Printable(path) +
                     "' is neither a trace folder nor a result of ttrace");
  }
  Page page(terminal.width, terminal.color);
  page.Section("VERDICT");
  page.Text(ResultText(At(json, "verdict")), Tone::kStrong);
  if (At(json, "reason").is_string()) page.Text(ResultText(At(json, "reason")));
  const Json& coverage = At(json, "coverage");
  page.Section("COVERAGE");
  page.Text(
      ResultText(At(coverage, "compared")) + " compared, " +
      ResultText(At(coverage, "reference_only")) + " only in the reference, " +
      ResultText(At(coverage, "candidate_only")) + " only in the candidate");
  for (const auto& [reason, count] : At(coverage, "explained").items()) {
    page.Text("explained: " + ResultText(count) + " " + reason);
  }
  page.Section("TENSORS");
  page.Text(TensorCounts(At(json, "tensors")));
  for (const Json& culprit : At(json, "culprits")) AddCulprit(culprit, page);
  page.Section("NOTES");
  for (const Json& note : At(json, "notes")) {
    page.Text(note.is_string() ? ResultText(note)
                               : ResultText(At(note, "text")));
  }
  return page.Take();
}

}  // namespace ttrace
