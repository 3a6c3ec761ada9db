#include "src/report/html/report_model.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "src/report/html/html_text.h"

namespace ttrace {
namespace {

using IdKey = std::tuple<std::string, std::string, int64_t, int64_t,
                         std::string, std::string>;

IdKey KeyOf(const ResultFile::Id& id) {
  return {id.fqn, id.role, id.iteration, id.call, id.arg, id.pass};
}

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

const std::array<MapColumn, kMapColumns> kMapColumnWords = {{
    {"weights", "start"},
    {"in", "forward"},
    {"out", "forward"},
    {"grad out", "backward"},
    {"grad in", "backward"},
    {"local", "gradients"},
    {"reduced", "gradients"},
    {"step", "update"},
}};

size_t MapColumnOf(const ResultFile::Id& id) {
  static const std::map<std::string_view, size_t> kColumns = {
      {"param", 0},        {"data", 1},       {"input", 1},
      {"buffer", 1},       {"output", 2},     {"loss", 2},
      {"grad_output", 3},  {"grad_input", 4}, {"grad_local", 5},
      {"grad_reduced", 6}, {"grad_norm", 7},  {"param_updated", 7},
      {"optim_state", 7}};
  // State that an iteration starts from stands beside its weights.
  if (id.role == "optim_state" && id.pass == "forward") return 0;
  const auto found = kColumns.find(id.role);
  return found == kColumns.end() ? kMapColumns - 1 : found->second;
}

bool IsOfParameter(const std::string& role) {
  return role == "param" || role == "grad_local" || role == "grad_reduced" ||
         role == "param_updated" || role == "optim_state";
}

bool IsOfIteration(const std::string& role) {
  return role == "data" || role == "loss" || role == "grad_norm";
}

std::string OverviewGroup(const ResultFile::Id& id) {
  if (IsOfIteration(id.role)) return id.role;
  std::vector<size_t> ends;  // of each part of the name
  for (size_t dot = id.fqn.find('.'); dot != std::string::npos;
       dot = id.fqn.find('.', dot + 1)) {
    ends.push_back(dot);
  }
  ends.push_back(id.fqn.size());
  if (IsOfParameter(id.role)) ends.pop_back();
  if (ends.empty()) return "";
  for (size_t i = 1; i < ends.size(); ++i) {
    const size_t begin = ends[i - 1] + 1;
    if (IsNumber(std::string_view(id.fqn).substr(begin, ends[i] - begin))) {
      return id.fqn.substr(0, ends[i]);
    }
  }
  return id.fqn.substr(0, ends[std::min<size_t>(1, ends.size() - 1)]);
}

ReportModel MakeReportModel(const ResultFile& result) {
  ReportModel model;
  model.result = &result;
  for (const ResultFile::Tensor& tensor : result.tensors) {
    model.tensors.push_back(&tensor);
  }
  std::stable_sort(
      model.tensors.begin(), model.tensors.end(),
      [](const ResultFile::Tensor* a, const ResultFile::Tensor* b) {
        return std::tie(a->iteration, a->order) <
               std::tie(b->iteration, b->order);
      });
  std::map<IdKey, int64_t> places;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    model.severity.push_back(SeverityOf(*model.tensors[i]));
    model.isolated.push_back(IsolatedSeverityOf(*model.tensors[i]));
    if (!result.culprits.empty()) {
      places.emplace(KeyOf(*model.tensors[i]), static_cast<int64_t>(i));
    }
  }
  for (const ResultFile::Place& culprit : result.culprits) {
    const auto found = places.find(KeyOf(culprit.tensor));
    if (found == places.end()) {
      model.stated.push_back(model.culprit_tensor.size());
    }
    model.culprit_tensor.push_back(found == places.end() ? -1 : found->second);
  }
  if (!result.culprits.empty()) {
    model.iteration = result.culprits.front().tensor.iteration;
  } else if (!model.tensors.empty()) {
    model.iteration = model.tensors.front()->iteration;
  } else if (!result.iterations.empty()) {
    model.iteration = result.iterations.front();
  }
  return model;
}

std::vector<std::string> OverviewRows(const ReportModel& model) {
  std::map<std::string, std::pair<size_t, size_t>> place;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const ResultFile::Tensor& tensor = *model.tensors[i];
    const size_t never = model.tensors.size();
    const auto [at, fresh] = place.try_emplace(OverviewGroup(tensor), never, i);
    const bool reached = tensor.pass == "forward" &&
                         (tensor.role == "input" || tensor.role == "output" ||
                          tensor.role == "loss");
    if (reached) at->second.first = std::min(at->second.first, i + 1);
    if (tensor.role == "data") at->second.first = 0;
    if (tensor.role == "grad_norm") at->second.first = never + 1;
  }
  std::vector<std::string> rows;
  for (const auto& [name, unused] : place) rows.push_back(name);
  std::sort(rows.begin(), rows.end(),
            [&](const std::string& a, const std::string& b) {
              return place[a] < place[b];
            });
  return rows;
}

std::string FragmentOf(const ResultFile::Id& id) {
  return TensorFragment({ShownName(id.fqn), ShownName(id.role),
                         std::to_string(id.iteration), std::to_string(id.call),
                         ShownName(id.arg), ShownName(id.pass)});
}

}  // namespace ttrace
