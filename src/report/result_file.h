// A result.json, read as any other program would read it: what reports for
// other programs are made of, whichever build wrote it.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_REPORT_RESULT_FILE_H_
#define TTRACE_SRC_REPORT_RESULT_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

// Fields of docs/result_schema.md by their names there. Texts are as they were
// written: names are hostile until a renderer has made them printable.
struct ResultFile {
  struct Axis {
    std::string name;
    int64_t size = 1;
  };
  struct Grid {
    std::string name;  // "mesh", or the name of another way to lay ranks out
    std::vector<Axis> axes;
    // Of each rank its place along the axes; of one that is missing nothing.
    std::vector<std::vector<int64_t>> coordinates;
  };
  struct Side {
    std::string folder;
    std::string mesh;
    int64_t world_size = 0;
    std::vector<std::string> legs;
    std::vector<Grid> grids;
  };
  struct Kind {  // of `clean`
    std::string kind;
    int64_t clean = 0;
    int64_t of = 0;
    int64_t not_checkable = 0;
    int64_t not_checkable_but_isolated = 0;
  };
  struct Isolation {
    int64_t judged = 0;
    int64_t of = 0;
    int64_t faulty = 0;
    int64_t hidden = 0;
    int64_t disputed = 0;
    int64_t rescued = 0;
  };
  struct Routing {
    int64_t tokens = 0;
    int64_t otherwise = 0;
    int64_t tied = 0;
  };
  struct Note {
    std::string kind;
    std::string text;
  };
  struct Class {
    std::string letter;
    std::string name;
    std::string evidence;
  };
  // What a tensor is, the same in every topology.
  struct Id {
    std::string fqn;
    std::string role;
    int64_t iteration = 0;
    int64_t call = 0;
    std::string arg;
    std::string pass;

    bool operator==(const Id&) const = default;
  };
  // Where in a tensor its error lies.
  struct Pattern {
    struct Piece {
      std::vector<int64_t> ranks;
      int64_t micro_batch = -1;
      std::string box;
      double err = 0;
      int64_t mismatched = 0;
      int64_t elements = 0;
    };
    std::string leg;
    // That rows and columns are indices of; -1: of none, there is one block.
    std::vector<int64_t> dims;
    std::vector<int64_t> rows;     // the first index of each, and the end
    std::vector<int64_t> columns;  // as rows
    // Of each block, row by row: the rms of its errors over the reference's rms
    // of the whole tensor.
    std::vector<double> errors;
    bool sampled = false;       // not all of the elements were read
    std::vector<Piece> pieces;  // the worst of them
    int64_t pieces_of = 0;      // how many there are
  };
  struct Place {  // of `culprits` and `contested`
    std::string fqn;
    std::string name_in_candidate;
    std::string source_file;  // empty: not known
    int64_t source_line = 0;
    std::string source_text;
    std::string role;
    std::string direction;
    std::string stage;
    std::vector<int64_t> ranks;
    int64_t iteration = 0;
    double headroom = 0;
    int64_t affected = 1;
    int64_t affected_of = 1;
    std::vector<std::string> affected_examples;
    std::vector<Class> classes;
    Id tensor;
    std::string where;
    std::vector<std::string> found_by;
    std::string disagreement;
    std::vector<std::string> contradictions;
    std::vector<std::string> hints;
    std::optional<Pattern> pattern;
  };
  struct Leg {
    std::string leg;
    // Of the statistic that decides, as `headroom` is, with what it may be and
    // what noise shows of it.
    double err = 0;
    double bound = 0;
    double headroom = 0;
    bool checkable = true;
    std::string provenance;
    std::string statistic;  // empty: no test was made
    double noise = 0;
    std::vector<int64_t> ranks;
    int64_t elements = 0;
    int64_t mismatched = 0;
    double max_abs_err = 0;
    double max_abs_ref = 0;
    double projection = 0;
    std::string fidelity;  // empty: of values
  };
  struct Isolated {
    std::string verdict;
    double headroom = 0;
    std::string leg;
    bool replaced = true;
    std::string reason;
  };
  struct Copies {
    int64_t groups = 0;
    int64_t copies = 0;
    int64_t differing = 0;
    double worst_rel_err = 0;
    std::vector<int64_t> ranks;
    std::vector<std::string> mesh_dims;
  };
  struct Tensor : Id {
    int64_t order = 0;
    std::string verdict;
    double headroom = 0;
    std::string leg;  // that decides; empty: none
    std::vector<Leg> legs;
    std::string reason;
    bool explained = false;
    std::optional<Isolated> isolated;
    std::vector<int64_t> ranks;
    bool nonfinite = false;
    bool replicas_differ = false;
    std::optional<Copies> copies;
    std::vector<int64_t> shape;  // empty: not known, or a number
    std::string dtype;           // of the candidate; empty: not known
    // Index into culprits, or -1, and what it is to that: "first", "same" (the
    // same fault in another tensor) or "downstream"; empty for one that is not
    // out of bounds.
    int64_t culprit = -1;
    std::string cause;
  };
  struct Module {  // of the candidate
    std::string fqn;
    std::string class_name;
    std::string source_file;  // empty: not known
    int64_t source_line = 0;
  };

  std::string verdict;
  int64_t exit_code = 2;
  std::string reason;
  int64_t compared = 0;
  int64_t reference_only = 0;
  int64_t candidate_only = 0;
  std::vector<std::pair<std::string, int64_t>> explained;  // reason, how many
  int64_t ExplainedCount() const;  // of a file's numbers: never too large
  bool has_reference = false;
  Side reference;
  Side candidate;
  std::vector<std::string> legs;
  std::vector<int64_t> iterations;
  std::vector<Kind> clean;
  bool bitwise = false;
  int64_t suspects = 0;
  int64_t not_checkable = 0;
  int64_t downstream = 0;
  std::optional<Isolation> isolation;
  std::optional<Routing> routing;
  double seconds = 0;
  int64_t bytes_compared = 0;
  int64_t tests = 0;
  double risk = 0;
  std::vector<Note> notes;
  std::vector<std::string> next_steps;
  std::vector<Module> modules;
  std::vector<Place> culprits;
  std::vector<Place> contested;
  std::vector<Tensor> tensors;
};

// Fails with kCorrupt if it is no result, or its verdict and exit code are none
// that a result has, kUnsupported if its schema is a later one. A field of
// another type than the schema's is an error, one that is missing has the value
// above.
Result<ResultFile> ParseResult(std::string_view json);

// Of a file, or of result.json in a folder. Fails also as ReadWholeFile.
Result<ResultFile> ReadResult(const std::string& path);

}  // namespace ttrace

#endif  // TTRACE_SRC_REPORT_RESULT_FILE_H_
