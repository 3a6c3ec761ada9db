// What a reader came for: where the runs first part, why, and what to do next.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/localize/bug_class.h"
#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

constexpr size_t kMostCards = 40;

std::string Chip(const std::string& html) {
  return "<span>" + html + "</span>";
}

std::string JoinedHtml(const std::vector<std::string>& words,
                       const char* between) {
  std::string out;
  for (const std::string& word : words) {
    out += (out.empty() ? "" : between) + HtmlText(word);
  }
  return out;
}

std::string Chips(const ResultFile::Place& place) {
  std::string out = "<p class=chips>" + Chip(HtmlText(place.direction)) +
                    Chip(HtmlText(place.stage)) + Chip(HtmlText(place.role));
  if (!place.tensor.arg.empty()) {
    out += Chip(HtmlText(ShownName(place.tensor.arg)));
  }
  out += Chip(fmt::format("iteration {}", place.iteration)) +
         Chip(place.ranks.empty() ? "no single rank"
                                  : FormatRanks(place.ranks, 0));
  if (place.headroom > 0) {
    out += Chip("headroom <b>" + HtmlHeadroom(place.headroom) + "</b>");
  }
  if (!place.found_by.empty()) {
    out += Chip("found by " + JoinedHtml(place.found_by, " and "));
  }
  return out + "</p>";
}

std::string SourceLine(const ResultFile::Place& place) {
  if (place.source_file.empty()) return "";
  const std::string at =
      fmt::format("{}:{}", place.source_file, place.source_line);
  std::string_view words = place.source_text;
  // It begins with the same place.
  if (words.substr(0, at.size()) == at) words.remove_prefix(at.size());
  if (words.substr(0, 2) == ", ") words.remove_prefix(2);
  return "<p class=source>" + CommandHtml(at) + "<span class=muted>" +
         HtmlText(words) + "</span></p>";
}

std::string Classes(const ResultFile::Place& place) {
  std::string out = "<h3>Why</h3><ul class=classes>";
  for (const ResultFile::Class& one : place.classes) {
    out += fmt::format("<li><b class=letter>{}</b><div><b>{}</b> {}</div>",
                       HtmlText(one.letter), HtmlText(one.name),
                       HtmlText(one.evidence));
  }
  if (place.classes.empty()) {
    out += "<li class=muted>" + HtmlText(kNoClassWords) + "</li>";
  }
  return out + "</ul>";
}

std::string PlainList(const char* heading,
                      const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out =
      std::string("<h3>") + heading + "</h3><ul class=\"plain dash\">";
  for (const std::string& line : lines) out += "<li>" + HtmlText(line);
  return out + "</ul>";
}

std::string CopiesLine(const ResultFile::Tensor& tensor) {
  if (!tensor.copies || tensor.copies->differing == 0) return "";
  const ResultFile::Copies& copies = *tensor.copies;
  std::string out = fmt::format(
      "<p>{} of {} copies differ from the first of their group, by up to {}",
      FormatCount(copies.differing), FormatCount(copies.copies),
      HtmlError(copies.worst_rel_err));
  if (!copies.mesh_dims.empty()) {
    out += " along <b>" + JoinedHtml(copies.mesh_dims, " x ") + "</b>";
  }
  if (!copies.ranks.empty()) out += " (" + FormatRanks(copies.ranks, 0) + ")";
  return out + ".</p>";
}

std::string SharedCause(const ResultFile::Place& place) {
  if (place.affected < 2) return "";
  std::string names;
  int64_t named = 1;
  for (const std::string& name : place.affected_examples) {
    if (name == place.fqn) continue;
    names +=
        (names.empty() ? ": <code>" : ", <code>") + HtmlName(name) + "</code>";
    ++named;
  }
  if (!names.empty() && place.affected > named) {
    names += fmt::format(" and {} more", FormatCount(place.affected - named));
  }
  return fmt::format(
      "<h3>Also</h3><p>{} of {} <code>{}</code> tensors share this "
      "cause{}.</p>",
      FormatCount(place.affected), FormatCount(place.affected_of),
      HtmlText(place.role), names);
}

std::string PlaceBody(const ResultFile::Place& place,
                      const ResultFile::Tensor* tensor) {
  std::string out = Chips(place) + SourceLine(place);
  if (!place.where.empty()) {
    out += "<p class=where>" + HtmlText(place.where) + "</p>";
  }
  if (!place.disagreement.empty()) {
    out +=
        "<p class=warn>The two ways differ: " + HtmlText(place.disagreement) +
        "</p>";
  }
  out += PlainList("Speaks against it", place.contradictions);
  out += Classes(place) + PlainList("Look", place.hints);
  if (tensor != nullptr) {
    out += "<h3>Evidence</h3>" + EvidenceHtml(*tensor) + CopiesLine(*tensor);
  }
  if (place.pattern) out += PatternHtml(*place.pattern);
  return out + SharedCause(place);
}

std::string Alias(const ResultFile::Place& place) {
  if (place.name_in_candidate.empty()) return "";
  return " <span class=muted>in the candidate: <code>" +
         HtmlName(place.name_in_candidate) + "</code></span>";
}

// A link where there is a tensor to open: what runs say of their settings has
// none.
std::string PlaceLink(const ResultFile::Place& place, int64_t tensor) {
  if (tensor < 0) return "<span class=name>" + HtmlName(place.fqn) + "</span>";
  return fmt::format("<a class=name data-tensor={} href=\"{}\">{}</a>", tensor,
                     FragmentOf(place.tensor), HtmlName(place.fqn));
}

std::string PlaceSummary(const ResultFile::Place& place) {
  std::string letters;
  for (const ResultFile::Class& one : place.classes) {
    letters += "<b class=letter>" + HtmlText(one.letter) + "</b> ";
  }
  return fmt::format(
      "<summary><span class=name>{}</span> {}<span class=muted>{}, {}, {}; "
      "iteration {}; headroom {}</span></summary>",
      HtmlName(place.fqn), letters, HtmlText(place.direction),
      HtmlText(place.stage), HtmlText(place.role), place.iteration,
      HtmlHeadroom(place.headroom));
}

// How much is wrong before and after the first place: all after and none before
// is one fault and what follows from it.
std::string BeforeAndAfter(const ReportModel& model) {
  const ResultFile& result = *model.result;
  const int64_t at =
      model.culprit_tensor.empty() ? -1 : model.culprit_tensor.front();
  int64_t out[2] = {0, 0};
  int64_t all[2] = {0, 0};
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    if (at >= 0 && (static_cast<int64_t>(i) == at ||
                    model.tensors[i]->iteration != model.iteration)) {
      continue;
    }
    const size_t side = static_cast<int64_t>(i) < at ? 0 : 1;
    ++all[side];
    if (IsOut(model.severity[i])) ++out[side];
  }
  if (at >= 0) {
    return fmt::format(
        "<p class=story>Before it in iteration {}: <b>{}</b> of {} tensors out "
        "of bounds. After it: <b>{}</b> of {}. {} in all {} downstream.</p>",
        model.iteration, FormatCount(out[0]), FormatCount(all[0]),
        FormatCount(out[1]), FormatCount(all[1]),
        FormatCount(result.downstream), result.downstream == 1 ? "is" : "are");
  }
  if (out[0] + out[1] == 0 || !result.culprits.empty()) return "";
  return fmt::format(
      "<p class=story>{} out of bounds, and none is named as a fault.</p>",
      Counted(out[0] + out[1], "tensor") + (out[1] == 1 ? " is" : " are"));
}

std::string FirstPlace(const ReportModel& model) {
  const ResultFile::Place& place = model.result->culprits.front();
  return "<h2 class=first id=place-0><span class=tag>First</span> " +
         PlaceLink(place, model.culprit_tensor.front()) + Alias(place) +
         "</h2>" + PlaceBody(place, model.TensorOfCulprit(0)) +
         BeforeAndAfter(model);
}

std::string OtherPlaces(const ReportModel& model) {
  const std::vector<ResultFile::Place>& all = model.result->culprits;
  if (all.size() < 2) return "";
  std::string out =
      fmt::format("<h3>{} where something goes wrong</h3>",
                  Counted(static_cast<int64_t>(all.size()) - 1, "more place"));
  for (size_t i = 1; i < std::min(all.size(), kMostCards); ++i) {
    out += fmt::format("<details id=place-{}>", i) + PlaceSummary(all[i]) +
           PlaceBody(all[i], model.TensorOfCulprit(i));
    if (model.culprit_tensor[i] >= 0) {
      out += "<p>" + PlaceLink(all[i], model.culprit_tensor[i]) + "</p>";
    }
    out += "</details>";
  }
  if (all.size() > kMostCards) {
    out +=
        fmt::format("<p class=muted>{} more are in result.json.</p>",
                    FormatCount(static_cast<int64_t>(all.size() - kMostCards)));
  }
  return out;
}

std::string Contested(const ResultFile& result) {
  if (result.contested.empty()) return "";
  std::string out =
      "<h3>Contested: other evidence speaks against these, so they are no "
      "findings</h3>";
  for (size_t i = 0; i < std::min(result.contested.size(), kMostCards); ++i) {
    out += "<details>" + PlaceSummary(result.contested[i]) +
           PlaceBody(result.contested[i], nullptr) + "</details>";
  }
  return out;
}

// Of a clean result: what came closest to being none.
std::string Closest(const ReportModel& model) {
  const ResultFile::Tensor* closest = nullptr;
  for (const ResultFile::Tensor* tensor : model.tensors) {
    if (tensor->verdict != "within" && tensor->verdict != "suspect") continue;
    if (closest == nullptr || tensor->headroom > closest->headroom) {
      closest = tensor;
    }
  }
  if (closest == nullptr) return "";
  return fmt::format(
      "<h2 class=first><span class=tag>Closest to its bound</span> <a "
      "class=name href=\"{}\">{}</a></h2><p class=chips>{}{}{}{}</p>{}",
      FragmentOf(*closest), HtmlName(closest->fqn),
      Chip(HtmlText(closest->role)),
      closest->arg.empty() ? "" : Chip(HtmlText(ShownName(closest->arg))),
      Chip(fmt::format("iteration {}", closest->iteration)),
      Chip("headroom <b>" + HtmlHeadroom(closest->headroom) + "</b>"),
      EvidenceHtml(*closest));
}

}  // namespace

Headline HeadlineOf(const std::string& verdict) {
  if (verdict == "diverged") return {"&#10005;", "Diverged"};
  if (verdict == "within") return {"&#10003;", "Within bounds"};
  if (verdict == "bitwise_equal") return {"=", "Equal bit for bit"};
  return {"?", "Could not decide"};
}

std::string StoryHtml(const ReportModel& model) {
  const ResultFile& result = *model.result;
  std::string out;
  if (result.verdict == "inconclusive") {
    out +=
        "<h2 class=first><span class=tag>Why not</span></h2><p class=where>" +
        HtmlText(result.reason) + "</p>" + NextStepsHtml(result.next_steps) +
        UndecidedHtml(model);
    if (!result.culprits.empty()) out += FirstPlace(model);
    return out + BeforeAndAfter(model) + OtherPlaces(model) + Contested(result);
  }
  if (!result.culprits.empty()) {
    return FirstPlace(model) + NextStepsHtml(result.next_steps) +
           OtherPlaces(model) + Contested(result);
  }
  return BeforeAndAfter(model) + Closest(model) +
         NextStepsHtml(result.next_steps) + Contested(result);
}

}  // namespace ttrace
