#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/format.h"
#include "src/report/html/html_text.h"
#include "src/report/html/sections.h"

namespace ttrace {

std::string TensorRowsHtml(const ReportModel& model) {
  std::vector<size_t> order(model.tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t shown = std::min(order.size(), kPlainRows);
  const bool any_out =
      std::any_of(model.severity.begin(), model.severity.end(), IsOut);
  // The first that are out of bounds, not the worst: these are states of the
  // optimizer. Where none is, the closest.
  const auto headroom = [&](size_t i) {
    const double value = model.tensors[i]->headroom;
    return std::isnan(value) ? 0 : value;  // NaN has no order
  };
  const auto before = [&](size_t a, size_t b) {
    const auto rank = [&](size_t i) {
      return std::min(model.severity[i], Severity::kOut);
    };
    if (rank(a) != rank(b)) return rank(a) > rank(b);
    const double x = headroom(a);
    const double y = headroom(b);
    if (!any_out && x != y) return x > y;
    return a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(shown),
                    order.end(), before);
  std::string out;
  for (size_t k = 0; k < shown; ++k) {
    const size_t i = order[k];
    const ResultFile::Tensor& tensor = *model.tensors[i];
    std::string verdict = tensor.verdict;
    std::replace(verdict.begin(), verdict.end(), '_', ' ');
    const Severity severity = model.severity[i];
    out += fmt::format(
        "<tr><td class=num>{}<td class=fqn>{}<td>{} <span class=muted>{}</span>"
        "<td class=num>{}<td><i class=\"k s{}\"></i>{}<td "
        "class=num>{}<td>{}<td "
        "class=num>{}<td>{}",
        i, HtmlName(tensor.fqn), HtmlText(tensor.role),
        HtmlText(ShownName(tensor.arg)), tensor.iteration,
        static_cast<int>(severity), HtmlText(verdict),
        IsOutWithinBound(severity, tensor.headroom) ? "&ne;"
        : !tensor.leg.empty() || IsOut(severity) ? HtmlHeadroom(tensor.headroom)
                                                 : "&ndash;",
        HtmlText(tensor.leg),
        model.isolated[i] > Severity::kUnobserved
            ? HtmlHeadroom(tensor.isolated->headroom)
            : "&ndash;",
        tensor.ranks.empty() ? "" : FormatRanks(tensor.ranks, 0));
  }
  return out;
}

}  // namespace ttrace
