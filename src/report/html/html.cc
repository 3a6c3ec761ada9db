#include "src/report/html/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/report/html/frame.h"
#include "src/report/html/html_text.h"
#include "src/report/html/packed_data.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

std::string MapLead(const ReportModel& model) {
  std::string out =
      "<p class=lead>Modules in the order in which the forward reaches them. "
      "Forward runs down, backward up, then gradients and the step follow to "
      "the right: an error moves that way. ";
  const bool isolated = std::any_of(
      model.isolated.begin(), model.isolated.end(),
      [](Severity severity) { return severity != Severity::kNone; });
  if (isolated) {
    out +=
        "<b>Left</b>: the run as it was, with everything downstream. "
        "<b>Right</b>: isolated, every module given the reference's values, so "
        "no error passes through one: what is out there was made there, by a "
        "module inside, or (<i>in</i>, <i>grad out</i>) by what ran just "
        "before.";
  }
  return out + "</p>";
}

constexpr const char* kDepthLead =
    "<p class=lead>Error over the order of execution, one strip a leg. Dots "
    "are "
    "errors, the line is the bound, the band the reference's own noise; the "
    "lowest row is equal bit for bit. Drag to look closer; with the keyboard, "
    "arrows move from tensor to tensor and Enter opens one.</p>";

// Fills of what has no number, for all drawings.
constexpr const char* kPatterns =
    "<svg width=0 height=0 class=patterns aria-hidden=true><defs><pattern "
    "id=p1 width=36 height=16 patternUnits=userSpaceOnUse><path d=\"M0 16L36 "
    "0\"/></pattern><pattern id=p2 width=6 height=6 "
    "patternUnits=userSpaceOnUse><path d=\"M2 3h1\"/></pattern><pattern id=p7 "
    "width=5 height=5 patternUnits=userSpaceOnUse><path d=\"M-1 1l2-2M0 "
    "5l5-5M4 "
    "6l2-2\"/></pattern></defs></svg>\n";

std::string Navigation(const Headline& headline, bool has_tensors) {
  std::string out = fmt::format(
      "<nav aria-label=Sections><b>TTrace</b><span class=verdict>{} {}</span>"
      "<a href=\"#summary\">Summary</a>",
      headline.sign, headline.words);
  if (has_tensors) {
    out +=
        "<a href=\"#map\">Map</a><a href=\"#depth\">Depth</a><a "
        "href=\"#ranks\">Ranks</a><a href=\"#tensors\">Tensors</a>";
  }
  return out +
         "<a href=\"#coverage\">Coverage</a><span id=iterations role=group "
         "aria-label=Iteration></span></nav>\n";
}

std::string SideHtml(const ResultFile::Side& side) {
  return "<b>" + HtmlText(side.folder) + "</b> (" + HtmlText(side.mesh) + ")";
}

std::string CompareCounts(const ResultFile& result) {
  const int64_t excused = result.ExplainedCount();
  const int64_t alone = result.reference_only + result.candidate_only;
  std::string out =
      Counted(result.compared, "tensor") +
      (result.has_reference ? " compared" : " examined, without a reference");
  if (alone > 0) {
    out += ", <b class=bad>" + FormatCount(alone) + " on one side only</b>";
  }
  if (excused > 0) out += ", " + FormatCount(excused) + " excused";
  if (result.bitwise) out += ", bit for bit";
  return out;
}

std::string SummarySection(const ReportModel& model, const Headline& headline) {
  const ResultFile& result = *model.result;
  // Of the other two, the reason is what stands below.
  const bool reason_is_news =
      result.verdict != "diverged" && result.verdict != "inconclusive";
  std::string out = fmt::format(
      "<section id=summary><header><h1><span aria-hidden=true>{}</span> {}"
      "</h1><p>{}{}{}</p><p class=muted>{}</p></header>",
      headline.sign, headline.words,
      reason_is_news ? HtmlText(result.reason) + ". " : "",
      SideHtml(result.candidate),
      result.has_reference ? " against " + SideHtml(result.reference) : "",
      CompareCounts(result));
  out += "<div class=hero><article>" + StoryHtml(model) +
         "</article><aside aria-label=Overview>" + OverviewHtml(model) +
         CleanBarsHtml(result) + "</aside></div>";
  if (!model.tensors.empty()) {
    LegendMarks marks;
    marks.culprits = !result.culprits.empty();
    for (const ResultFile::Tensor* tensor : model.tensors) {
      marks.downstream |= tensor->cause == "downstream";
    }
    out += LegendHtml(marks);
  }
  return out + "</section>\n";
}

std::string TensorSections(const ReportModel& model) {
  const auto count = static_cast<int64_t>(model.tensors.size());
  std::string out =
      "<section id=map><h2>Map</h2>" + MapLead(model) +
      "<noscript><p class=warn>The map, the depth plot and the search need "
      "JavaScript. The overview above does not.</p></noscript><div class=tools "
      "id=maptools hidden></div><div class=scroll><table id=grid class=grid "
      "role=treegrid aria-label=\"Modules and their tensors\"></table></div>"
      "</section>\n<section id=depth><h2>Depth</h2>" +
      kDepthLead +
      "<div class=tools id=depthtools hidden></div><div id=plots></div><p "
      "id=readout class=muted aria-live=polite></p></section>\n";
  const std::string ranks = RanksHtml(model);
  out += "<section id=ranks><h2>Ranks</h2>" +
         (ranks.empty() ? "<p class=muted>Not known.</p>" : ranks) +
         "</section>\n";
  out += fmt::format(
      "<section id=tensors><h2>All {}</h2><div class=tools id=filters hidden>"
      "</div><div class=scroll><table id=list class=small><thead><tr><th "
      "scope=col class=num>order<th scope=col>name<th scope=col>role<th "
      "scope=col class=num>it.<th scope=col>verdict<th scope=col class=num>"
      "headroom<th scope=col>leg<th scope=col class=num>isolated<th scope=col>"
      "ranks</thead><tbody>{}</tbody></table></div><p class=muted id=more>{}"
      "</p></section>\n",
      Counted(count, "tensor"), TensorRowsHtml(model),
      count > static_cast<int64_t>(kPlainRows)
          ? fmt::format("The {} that matter most; all are in result.json.",
                        kPlainRows)
          : "");
  return out;
}

}  // namespace

std::string RenderHtml(const ResultFile& result) {
  const ReportModel model = MakeReportModel(result);
  const Headline headline = HeadlineOf(result.verdict);
  const bool has_tensors = !model.tensors.empty();
  Frame frame;
  frame.title = std::string("TTrace: ") + headline.words + ": " +
                HtmlText(ShortenMiddle(Printable(result.reason), 200));
  frame.verdict = HtmlText(result.verdict);
  frame.body = kPatterns + Navigation(headline, has_tensors) + "<main>" +
               SummarySection(model, headline);
  if (has_tensors) frame.body += TensorSections(model);
  frame.body +=
      "<section id=coverage><h2>Coverage and notes</h2>" + CoverageHtml(model) +
      "</section>\n</main>\n<aside id=drawer role=dialog aria-modal=true "
      "aria-label=\"One "
      "tensor\" tabindex=-1 hidden></aside>\n<div id=tip role=tooltip hidden>"
      "</div>\n";
  frame.data = PackData(model);
  return FrameHtml(frame);
}

}  // namespace ttrace
