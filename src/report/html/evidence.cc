// How the legs of a tensor compare: error, bound and the reference's own noise,
// one line a leg over one logarithmic axis.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/format.h"
#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

constexpr double kAxisLeft = 14;
constexpr double kAxisWidth = 252;

bool HasPlace(double value) { return std::isfinite(value) && value > 0; }

class LegAxis {
 public:
  explicit LegAxis(const std::vector<ResultFile::Leg>& legs) {
    double low = 1e300;
    double high = 0;
    for (const ResultFile::Leg& leg : legs) {
      for (const double value : {leg.err, leg.bound, leg.noise}) {
        if (!HasPlace(value)) continue;
        low = std::min(low, value);
        high = std::max(high, value);
      }
    }
    if (high == 0) low = high = 1;
    low_ = static_cast<int>(std::floor(std::log10(low)));
    high_ = std::max(static_cast<int>(std::ceil(std::log10(high))), low_ + 1);
  }

  // 0 stands at the left end, infinity at the right one.
  double At(double value) const {
    if (!HasPlace(value)) return kAxisLeft + (value > 0 ? kAxisWidth : 0);
    return AtDecade(std::log10(value));
  }

  template <typename Draw>
  void ForEachTick(Draw draw) const {
    const int step = std::max(1, (high_ - low_ + 3) / 4);
    for (int decade = low_; decade <= high_; decade += step) {
      draw(AtDecade(decade), decade);
    }
  }

 private:
  double AtDecade(double decade) const {
    return kAxisLeft + kAxisWidth * (decade - low_) / (high_ - low_);
  }

  int low_;
  int high_;
};

std::string LegChart(const ResultFile::Leg& leg, const LegAxis& axis,
                     bool out) {
  std::string svg = fmt::format(
      "<svg width=280 height=20 role=img aria-label=\"error {}, bound {}, "
      "noise "
      "{}\">",
      HtmlError(leg.err), HtmlError(leg.bound), HtmlError(leg.noise));
  axis.ForEachTick([&](double x, int) {
    svg += fmt::format("<path class=grid d=\"M{:.1f} 0v20\"/>", x);
  });
  if (HasPlace(leg.noise)) {
    svg +=
        fmt::format("<rect class=noise x={} y=6 width=\"{:.1f}\" height=8 />",
                    kAxisLeft, axis.At(leg.noise) - kAxisLeft);
  }
  const char* bad = out ? " bad" : "";
  const double error = axis.At(leg.err);
  if (leg.checkable) {
    const double bound = axis.At(leg.bound);
    svg += fmt::format("<path class=\"reach{}\" d=\"M{:.1f} 10H{:.1f}\"/>", bad,
                       bound, error);
    svg += fmt::format("<path class=bound d=\"M{:.1f} 2v16\"/>", bound);
  }
  // Shape and not colour alone tells what is out: a diamond, not a disc.
  svg +=
      out ? fmt::format(
                "<path class=\"err bad\" d=\"M{:.1f} 4.5l5.5 5.5l-5.5 "
                "5.5l-5.5-5.5z\"/>",
                error)
          : fmt::format("<circle class=err cx=\"{:.1f}\" cy=10 r=4 />", error);
  return svg + "</svg>";
}

// Where its bound is from, and how many of its elements differ by how much.
std::string LegWords(const ResultFile::Leg& leg) {
  std::string out = "bound: " + HtmlText(leg.provenance);
  if (!leg.checkable) out += " (too wide to judge by)";
  if (!leg.ranks.empty()) out += "; out on " + FormatRanks(leg.ranks, 0);
  if (leg.fidelity.empty() && leg.mismatched > 0) {
    out += fmt::format("; {} of {} elements differ, by at most {} of {}",
                       FormatCount(leg.mismatched), FormatCount(leg.elements),
                       HtmlError(leg.max_abs_err), HtmlError(leg.max_abs_ref));
  }
  if (!leg.fidelity.empty()) out += "; of a " + HtmlText(leg.fidelity);
  return out;
}

}  // namespace

std::string EvidenceHtml(const ResultFile::Tensor& tensor) {
  if (tensor.legs.empty()) {
    return "<p class=muted>No leg judged this tensor by numbers.</p>";
  }
  const LegAxis axis(tensor.legs);
  std::string out =
      "<div class=scroll><table class=evidence><thead><tr><th scope=col>leg"
      "<th scope=col class=num>error<th scope=col class=num>bound<th scope=col "
      "class=num>headroom<th class=chart aria-hidden=true><svg width=280 "
      "height=12>";
  axis.ForEachTick([&](double x, int decade) {
    out += fmt::format("<text x=\"{:.0f}\" y=9 text-anchor=middle>1e{}</text>",
                       x, decade);
  });
  out += "</svg></thead><tbody>";
  for (const ResultFile::Leg& leg : tensor.legs) {
    const bool beyond = leg.checkable && leg.headroom > 1;
    out += fmt::format(
        "<tr><th scope=row>{}<td class=num>{}<td class=num>{}<td class=\"num "
        "{}\">{}{}<td class=chart>{}<tr class=prov><td colspan=5>{}",
        HtmlText(leg.leg), HtmlError(leg.err), HtmlError(leg.bound),
        beyond ? "bad" : "",
        leg.checkable ? HtmlHeadroom(leg.headroom) : "&ndash;",
        beyond ? " &times;" : "", LegChart(leg, axis, beyond), LegWords(leg));
  }
  return out +
         "</table></div><p class=key><i class=k-noise></i> noise of the "
         "reference <i class=k-bound></i> bound <i class=k-err></i> error "
         "<i class=k-out></i> error out of bounds</p>";
}

}  // namespace ttrace
