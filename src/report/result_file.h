// A result.json, read as any other program would read it: what reports for
// other programs are made of, whichever build wrote it.
//
// Thread safety: plain values and pure functions.

#ifndef TTRACE_SRC_REPORT_RESULT_FILE_H_
#define TTRACE_SRC_REPORT_RESULT_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/status.h"

namespace ttrace {

// Fields of docs/result_schema.md by their names there. Texts are as they were
// written: names are hostile until a renderer has made them printable.
struct ResultFile {
  struct Side {
    std::string folder;
    std::string mesh;
    int64_t world_size = 0;
  };
  struct Kind {  // of `clean`
    std::string kind;
    int64_t clean = 0;
    int64_t of = 0;
  };
  struct Class {
    std::string letter;
    std::string name;
    std::string evidence;
  };
  struct Id {  // of a tensor
    std::string fqn;
    std::string role;
    int64_t iteration = 0;
    int64_t call = 0;
    std::string arg;
    std::string pass;
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
    Id tensor;  // that shows it first
    std::vector<Class> classes;
    std::string where;
    std::vector<std::string> hints;
  };
  struct Tensor : Id {
    std::string verdict;
    double headroom = 0;
    std::string reason;
    bool explained = false;
    std::string verdict_isolated;  // empty: it was not judged so
  };

  std::string verdict;
  int64_t exit_code = 2;
  std::string reason;
  int64_t compared = 0;
  int64_t reference_only = 0;
  int64_t candidate_only = 0;
  bool has_reference = false;
  Side reference;
  Side candidate;
  std::vector<int64_t> iterations;
  std::vector<Kind> clean;
  double seconds = 0;
  int64_t downstream = 0;
  std::vector<std::string> notes;
  std::vector<std::string> next_steps;
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
