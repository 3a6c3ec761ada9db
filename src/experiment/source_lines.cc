#include "src/experiment/source_lines.h"

#include <fmt/format.h>

#include <utility>

#include "src/experiment/module_names.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

using Json = nlohmann::json;

std::optional<SourceLine> LineAt(const Json& json, const char* file,
                                 const char* line) {
  SourceLine out{TextAt(json, file), CountAt(json, line)};
  if (out.file.empty() || out.line < 1) return std::nullopt;
  return out;
}

}  // namespace

SourceLines SourceLines::Read(const Trace& trace) {
  SourceLines out;
  ForEachNote(
      trace, {"source_of_class", "source_of_call"},
      [&](const ParsedNote& note) {
        std::optional<SourceLine> at = LineAt(note.json, "file", "line");
        if (note.kind == "source_of_call") {
          if (at) out.calls_.emplace(TextAt(note.json, "what"), *std::move(at));
          return;
        }
        const auto source = std::make_shared<const SourceOfClass>(
            SourceOfClass{TextAt(note.json, "class"), std::move(at),
                          TextAt(note.json, "base"),
                          LineAt(note.json, "forward_file", "forward_line"),
                          TrueAt(note.json, "of_torch")});
        for (std::string& fqn : TextsAt(note.json, "modules")) {
          out.modules_.emplace(std::move(fqn), source);
        }
      });
  return out;
}

SourceLines::Modules::const_iterator SourceLines::Nearest(
    const std::string& fqn) const {
  for (std::string name = fqn;; name = ParentName(name)) {
    const auto found = modules_.find(name);
    if (found != modules_.end() || name.empty()) return found;
  }
}

const SourceOfClass* SourceLines::OfModule(const std::string& fqn) const {
  const auto found = Nearest(fqn);
  return found == modules_.end() ? nullptr : found->second.get();
}

std::optional<UserOfClass> SourceLines::UserOf(const std::string& fqn) const {
  const auto used = Nearest(fqn);
  auto user = used;
  while (user != modules_.end() && user->second->of_torch) {
    if (user->first.empty()) return std::nullopt;
    user = Nearest(ParentName(user->first));
  }
  if (user == modules_.end() || user == used ||
      user->second->first() == nullptr) {
    return std::nullopt;
  }
  const size_t above = user->first.empty() ? 0 : user->first.size() + 1;
  return UserOfClass{user->second.get(), used->first.substr(above)};
}

const SourceLine* SourceLines::OfCall(const std::string& what) const {
  const auto found = calls_.find(what);
  return found == calls_.end() ? nullptr : &found->second;
}

std::string SourceWords(const SourceOfClass& of) {
  if (!of.at) {
    if (!of.forward) return "";
    return fmt::format("{}:{}, forward of class {}", of.forward->file,
                       of.forward->line, of.name);
  }
  std::string out = fmt::format("{}:{}, class {}", of.at->file, of.at->line,
                                of.base.empty() ? of.name : of.base);
  if (!of.base.empty()) out += fmt::format(" (base of {})", of.name);
  if (!of.forward) return out;
  if (of.forward->file == of.at->file) {
    return out + fmt::format(", forward at line {}", of.forward->line);
  }
  return out +
         fmt::format(", forward at {}:{}", of.forward->file, of.forward->line);
}

}  // namespace ttrace
