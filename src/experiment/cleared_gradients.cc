#include "src/experiment/cleared_gradients.h"

#include <optional>
#include <vector>

#include "src/trace/note_json.h"

namespace ttrace {
namespace {

bool AddCleared(const ParsedNote& note, ClearedGradients* out) {
  const std::optional<int> iteration = note.iteration();
  const int64_t after = CountAt(note.json, "micro_batches");
  const std::vector<std::string> names = TextsAt(note.json, "parameters");
  if (!iteration || after < 1 || names.empty()) return false;
  for (const std::string& fqn : names) {
    Clearing& clearing = out->seen[{*iteration, fqn}];
    clearing.after.insert(after);
    clearing.ranks.insert(note.rank);
  }
  return true;
}

}  // namespace

const Clearing* ClearedGradients::Find(int iteration,
                                       const std::string& fqn) const {
  const auto found = seen.find({iteration, fqn});
  return found == seen.end() ? nullptr : &found->second;
}

ClearedGradients ReadClearedGradients(const NoteList& notes) {
  ClearedGradients out;
  out.malformed +=
      ForEachNote(notes, {"gradients_cleared"}, [&](const ParsedNote& note) {
        out.malformed += !AddCleared(note, &out);
      });
  return out;
}

}  // namespace ttrace
