// A result.json for people: verdict, coverage, culprits.

#include <fmt/format.h>

#include <map>

#include "src/base/format.h"
#include "src/cli/inspect.h"
#include "src/report/page.h"
#include "src/report/result_file.h"

namespace ttrace {
namespace {

void AddCulprit(const ResultFile::Place& culprit, Page& page) {
  page.Section("CULPRIT", Tone::kBad);
  page.Text(culprit.fqn.empty() ? "(the model itself)" : culprit.fqn,
            Tone::kStrong);
  if (!culprit.source_text.empty()) page.Verbatim(culprit.source_text);
  page.Text(fmt::format(
      "{}, {}, {}, iteration {}, {}, headroom {}", culprit.role,
      culprit.direction, culprit.stage, culprit.iteration,
      culprit.ranks.empty() ? "no single rank" : FormatRanks(culprit.ranks, 0),
      FormatHeadroom(culprit.headroom)));
  page.Text(fmt::format("affected: {} of {}", FormatCount(culprit.affected),
                        FormatCount(culprit.affected_of)));
  for (const ResultFile::Class& found : culprit.classes) {
    page.Text(
        fmt::format("{}: {}; {}", found.letter, found.name, found.evidence),
        Tone::kPlain, 3);
  }
}

std::string TensorCounts(const std::vector<ResultFile::Tensor>& tensors) {
  std::map<std::string, int64_t> verdicts;
  for (const ResultFile::Tensor& tensor : tensors) ++verdicts[tensor.verdict];
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
  auto read = ReadResult(path);
  if (!read.ok()) {
    if (read.error().code() != ErrorCode::kCorrupt) return read.error();
    return read.error().WithContext("neither a trace folder nor a result");
  }
  const ResultFile& result = *read;
  Page page(terminal.width, terminal.color);
  page.Section("VERDICT");
  page.Text(result.verdict, Tone::kStrong);
  if (!result.reason.empty()) page.Text(result.reason);
  page.Section("COVERAGE");
  page.Text(fmt::format(
      "{} compared, {} only in the reference, {} only in the candidate",
      FormatCount(result.compared), FormatCount(result.reference_only),
      FormatCount(result.candidate_only)));
  for (const auto& [reason, count] : result.explained) {
    page.Text(fmt::format("explained: {} {}", FormatCount(count), reason));
  }
  page.Section("TENSORS");
  page.Text(TensorCounts(result.tensors));
  for (const ResultFile::Place& culprit : result.culprits) {
    AddCulprit(culprit, page);
  }
  page.Section("NOTES");
  for (const ResultFile::Note& note : result.notes) page.Text(note.text);
  return page.Take();
}

}  // namespace ttrace
