// The collectives that the candidate's ranks recorded, and how its ranks lie in
// the mesh: what a question about a sum over ranks is answered from.
//
// Thread safety: const after construction; what it is given must outlive it.

#ifndef TTRACE_SRC_DIAGNOSE_REDUCTIONS_SEEN_COLLECTIVES_H_
#define TTRACE_SRC_DIAGNOSE_REDUCTIONS_SEEN_COLLECTIVES_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/align/attribute.h"
#include "src/align/catalog.h"
#include "src/align/collective.h"
#include "ttrace/mesh.h"

namespace ttrace {

// A grid, and where the ranks lie in it.
struct RankGrid {
  const DeviceMesh* mesh = nullptr;
  std::map<int, Coordinate> coordinates;  // by rank
};

// What the candidate's trace says.
struct ReductionEvidence {
  const DeviceMesh* mesh = nullptr;
  std::map<int, Coordinate> coordinates;                      // of its ranks
  std::vector<RankGrid> views;                                // other grids
  const std::map<TensorId, TensorPieces>* tensors = nullptr;  // of leg "real"
  const CollectiveLog* collectives = nullptr;
  const std::vector<Attribute>* attributes = nullptr;
};

class SeenCollectives {
 public:
  explicit SeenCollectives(ReductionEvidence evidence);

  const ReductionEvidence& evidence() const { return evidence_; }

  // Every rank of the mesh recorded this iteration's collectives to the end.
  bool IsComplete(int iteration) const;
  // Of one rank in one iteration, in order.
  const std::vector<const Collective*>& Of(int rank, int iteration) const;
  // A module was seen to communicate along `dim`, in any iteration.
  bool ModulesUse(const std::string& dim) const;
  // False for a rank that is known not to have the parameter.
  bool MayHave(int rank, const std::string& parameter) const;

  bool DimIsShared(const std::string& dim) const;  // of more than one rank
  // Among `ranks` are different places along `dim`.
  // REQUIRES: IsComplete of any iteration, so that every rank has a coordinate.
  bool Varies(const std::vector<int>& ranks, const std::string& dim) const;
  // Two ranks differ in nothing but `dims`, in the first grid that has them.
  // REQUIRES: as above.
  bool OnOneLine(int a, int b, const std::set<std::string>& dims) const;

 private:
  // The first grid that has all of `dims`; the mesh if none has.
  const RankGrid& GridOf(const std::set<std::string>& dims) const;

  ReductionEvidence evidence_;
  std::vector<RankGrid> grids_;  // the mesh, then its views
  // (rank, iteration) -> its collectives.
  std::map<std::pair<int, int>, std::vector<const Collective*>> seen_;
  std::map<std::string, std::set<int>> parameter_ranks_;
};

// Elements of a rank's own piece.
int64_t Elements(const Record& record);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_REDUCTIONS_SEEN_COLLECTIVES_H_
