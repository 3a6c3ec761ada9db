#include "src/experiment/gradients_not_found.h"

#include <optional>

#include "src/trace/note_json.h"

namespace ttrace {

GradientsNotFound ReadGradientsNotFound(const NoteList& notes) {
  GradientsNotFound out;
  ForEachNote(notes, {"no_gradient"}, [&](const ParsedNote& note) {
    const std::optional<int> iteration = note.iteration();
    if (!iteration) return;
    for (const std::string& fqn : TextsAt(note.json, "parameters")) {
      out[{*iteration, fqn}].insert(note.rank);
    }
  });
  return out;
}

}  // namespace ttrace
