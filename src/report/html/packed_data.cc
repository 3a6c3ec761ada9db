#include "src/report/html/packed_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/format.h"
#include "src/report/html/base64.h"
#include "src/report/html/html_text.h"
#include "src/report/html/packed_values.h"

namespace ttrace {
namespace {

using PackedJson = nlohmann::ordered_json;

constexpr size_t kLongestReason = 400;

// Values to small numbers, in the order in which they come.
template <typename T>
class PackTable {
 public:
  uint32_t operator()(const T& value) {
    const auto [at, fresh] =
        index_.emplace(value, static_cast<uint32_t>(values_.size()));
    if (fresh) values_.push_back(value);
    return at->second;
  }
  const std::vector<T>& values() const { return values_; }

 private:
  std::map<T, uint32_t> index_;
  std::vector<T> values_;
};

std::string PackColumn(const std::vector<uint32_t>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (values.empty()) return "=0";
  if (*least == *most) return "=" + std::to_string(*least);
  const size_t width = *most < 256 ? 1 : *most < 65536 ? 2 : 4;
  std::string bytes;
  bytes.reserve(values.size() * width);
  for (const uint32_t value : values) {
    for (size_t i = 0; i < width; ++i) {
      bytes += static_cast<char>(value >> (8 * i) & 255);
    }
  }
  return (width == 1 ? "B" : width == 2 ? "H" : "I") + Base64(bytes);
}

class PackedColumns {
 public:
  void Add(const char* name, uint32_t value) {
    columns_[name].push_back(value);
  }
  PackedJson Json() const {
    PackedJson out = PackedJson::object();
    for (const auto& [name, values] : columns_) out[name] = PackColumn(values);
    return out;
  }

 private:
  std::map<std::string, std::vector<uint32_t>> columns_;
};

// Names of one model begin alike: of each only what differs from the one
// before, after the number of parts that are the same.
std::vector<std::string> FrontCoded(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  std::string_view before;
  for (const std::string& name : names) {
    size_t parts = 0;
    size_t begin = 0;
    for (;;) {
      const size_t dot = name.find('.', begin);
      if (dot == std::string::npos ||
          before.substr(0, dot + 1) !=
              std::string_view(name).substr(0, dot + 1)) {
        break;
      }
      ++parts;
      begin = dot + 1;
    }
    out.push_back(std::to_string(parts) + "~" + name.substr(begin));
    before = name;
  }
  return out;
}

std::string FormWords(const ResultFile::Tensor& tensor) {
  std::string out;
  for (const int64_t size : tensor.shape) {
    out += (out.empty() ? "" : " x ") + std::to_string(size);
  }
  if (!tensor.dtype.empty()) {
    out += (out.empty() ? "" : " ") + ShownName(tensor.dtype);
  }
  return out;
}

using Slot = std::tuple<std::string, std::string, std::string, int64_t, size_t>;
using LegKind = std::tuple<uint32_t, std::string, int, std::string>;
using PackedCopies = std::tuple<int64_t, int64_t, std::string, std::string>;

class Packer {
 public:
  explicit Packer(const ReportModel& model) : model_(model) {
    size_t legs = 0;
    for (const ResultFile::Tensor* tensor : model.tensors) {
      legs += tensor->legs.size();
    }
    keeps_legs_of_clean_ = legs <= kMostPackedLegs;
  }

  PackedJson Pack() {
    // The first of each table is what most tensors have.
    ranks_("");
    reasons_("");
    forms_("");
    copies_({});
    causes_({-1, ""});
    for (size_t i = 0; i < model_.tensors.size(); ++i) AddTensor(i);
    for (const size_t i : model_.stated) {
      iterations_(model_.result->culprits[i].tensor.iteration);
    }
    PackedJson out = PackedJson::object();
    out["n"] = model_.tensors.size();
    out["names"] = FrontCoded(names_.values());
    out["odd"] = odd_;
    out["its"] = iterations_.values();
    out["slots"] = slots_.values();
    out["legs"] = legs_.values();
    out["kinds"] = kinds_.values();
    out["reasons"] = reasons_.values();
    out["ranks"] = ranks_.values();
    out["forms"] = forms_.values();
    out["copies"] = copies_.values();
    out["causes"] = causes_.values();
    out["verdicts"] = verdicts_.values();
    out["t"] = tensors_.Json();
    out["l"] = leg_columns_.Json();
    out["legsOfClean"] = keeps_legs_of_clean_;
    AddHead(&out);
    return out;
  }

 private:
  uint32_t NameIndex(const std::string& fqn) {
    const std::string shown = ShownName(fqn);
    const uint32_t index = names_(shown);
    // No command can be made of what is not shown as it is.
    if (shown != fqn && (odd_.empty() || odd_.back() != index)) {
      odd_.push_back(index);
    }
    return index;
  }

  void AddTensor(size_t i) {
    const ResultFile::Tensor& tensor = *model_.tensors[i];
    const ResultFile::Isolated alone =
        tensor.isolated.value_or(ResultFile::Isolated{});
    tensors_.Add("fqn", NameIndex(tensor.fqn));
    tensors_.Add("it", iterations_(tensor.iteration));
    tensors_.Add("slot", slots_({ShownName(tensor.role), ShownName(tensor.arg),
                                 ShownName(tensor.pass), tensor.call,
                                 MapColumnOf(tensor)}));
    tensors_.Add("v", verdicts_(ShownName(tensor.verdict)));
    tensors_.Add("sev", static_cast<uint32_t>(model_.severity[i]));
    tensors_.Add("h", PackNumber(tensor.headroom));
    // 0: none decides.
    tensors_.Add("leg",
                 tensor.leg.empty() ? 0 : 1 + legs_(ShownName(tensor.leg)));
    tensors_.Add("isev", static_cast<uint32_t>(model_.isolated[i]));
    tensors_.Add("ih", tensor.isolated ? PackNumber(alone.headroom) : 0);
    const std::string& reason =
        tensor.reason.empty() ? alone.reason : tensor.reason;
    tensors_.Add("why",
                 reasons_(ShortenMiddle(Printable(reason), kLongestReason)));
    tensors_.Add(
        "ranks",
        ranks_(tensor.ranks.empty() ? "" : FormatRanks(tensor.ranks, 0)));
    tensors_.Add("form", forms_(FormWords(tensor)));
    tensors_.Add("cause", causes_({tensor.culprit, ShownName(tensor.cause)}));
    tensors_.Add("copies", copies_(CopiesOf(tensor)));
    const bool with_legs = keeps_legs_of_clean_ || IsOut(model_.severity[i]) ||
                           IsOut(model_.isolated[i]);
    tensors_.Add("n",
                 with_legs ? static_cast<uint32_t>(tensor.legs.size()) : 0);
    if (!with_legs) return;
    for (const ResultFile::Leg& leg : tensor.legs) {
      leg_columns_.Add(
          "kind",
          kinds_({legs_(ShownName(leg.leg)), ShownName(leg.statistic),
                  leg.checkable ? 1 : 0,
                  ShortenMiddle(Printable(ProvenanceTemplate(leg.provenance)),
                                kLongestReason)}));
      leg_columns_.Add("e", PackNumber(leg.err));
      leg_columns_.Add("b", PackNumber(leg.bound));
      leg_columns_.Add("h", PackHeadroom(leg));
      leg_columns_.Add("z", PackNumber(leg.noise));
    }
  }

  static uint16_t PackHeadroom(const ResultFile::Leg& leg) {
    const double ratio = leg.err / leg.bound;
    const bool is_ratio = std::abs(ratio - leg.headroom) <= 1e-3 * leg.headroom;
    return is_ratio ? 0 : PackNumber(leg.headroom);
  }

  static PackedCopies CopiesOf(const ResultFile::Tensor& tensor) {
    if (!tensor.copies) return {};
    std::string axes;
    for (const std::string& axis : tensor.copies->mesh_dims) {
      axes += (axes.empty() ? "" : " x ") + ShownName(axis);
    }
    return {tensor.copies->copies, tensor.copies->differing, axes,
            FormatError(tensor.copies->worst_rel_err)};
  }

  // Culprits that the map shows without a tensor: at their name, in the column
  // where their tensor would be, with the letters of their classes.
  PackedJson StatedCulprits() const {
    PackedJson out = PackedJson::array();
    for (const size_t i : model_.stated) {
      const ResultFile::Place& place = model_.result->culprits[i];
      std::string letters;
      for (const ResultFile::Class& one : place.classes) {
        letters += one.letter;
      }
      out.push_back({i, ShownName(place.fqn), place.tensor.iteration,
                     MapColumnOf(place.tensor), ShownName(place.role),
                     ShownName(letters)});
    }
    return out;
  }

  void AddHead(PackedJson* out) const {
    PackedJson columns = PackedJson::array();
    for (const MapColumn& column : kMapColumnWords) {
      columns.push_back({column.label, column.group});
    }
    (*out)["columns"] = std::move(columns);
    (*out)["severity"] = kSeverityWords;
    (*out)["first"] = model_.iteration;
    (*out)["candidate"] = Printable(model_.result->candidate.folder);
    (*out)["culprits"] = model_.culprit_tensor;
    (*out)["stated"] = StatedCulprits();
    // Of older results, which do not say each tensor's cause.
    PackedJson affected = PackedJson::array();
    for (const ResultFile::Place& place : model_.result->culprits) {
      std::vector<std::string> names;
      for (const std::string& name : place.affected_examples) {
        names.push_back(ShownName(name));
      }
      affected.push_back({ShownName(place.role), place.iteration, names});
    }
    (*out)["affected"] = std::move(affected);
    PackTable<std::string> classes;
    PackTable<std::string> files;
    PackedJson modules = PackedJson::array();
    for (const ResultFile::Module& module : model_.result->modules) {
      modules.push_back(
          {ShownName(module.fqn), classes(ShownName(module.class_name)),
           files(ShownName(module.source_file)), module.source_line});
    }
    (*out)["modules"] = std::move(modules);
    (*out)["classes"] = classes.values();
    (*out)["files"] = files.values();
  }

  const ReportModel& model_;
  PackTable<std::string> names_, legs_, reasons_, ranks_, forms_, verdicts_;
  PackTable<int64_t> iterations_;
  PackTable<Slot> slots_;
  PackTable<LegKind> kinds_;
  PackTable<PackedCopies> copies_;
  PackTable<std::pair<int64_t, std::string>> causes_;
  std::vector<uint32_t> odd_;
  bool keeps_legs_of_clean_ = true;
  PackedColumns tensors_;
  PackedColumns leg_columns_;
};

}  // namespace

std::string PackData(const ReportModel& model) {
  const std::string json = Packer(model).Pack().dump(
      -1, ' ', true, PackedJson::error_handler_t::replace);
  std::string out;
  out.reserve(json.size());
  // In JSON these three stand in strings only.
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace ttrace
