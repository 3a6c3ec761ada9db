// PlainRecords: rows of a table from lines of an index, without a RecordFields
// for each: of a rank's many records, names, forms and layouts are looked up
// once for each spec and leg.
//
// Only what is right is taken. What is wrong with any other line, if anything
// is, the IndexLineDecoder says.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_INDEX_PLAIN_RECORDS_H_
#define TTRACE_SRC_TRACE_INDEX_PLAIN_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "src/trace/index/known_specs.h"
#include "src/trace/index/plain_line.h"
#include "src/trace/record_table.h"
#include "src/trace/writer.h"

namespace ttrace {

class PlainRecords {
 public:
  // All three have to stay. The table's records are this rank's alone.
  PlainRecords(const RankMeta& meta, const KnownSpecs& specs,
               RecordTable* table)
      : meta_(meta), specs_(specs), table_(*table) {}

  struct Row {
    RecordTable::Parts parts;
    RecordTable::Own own;
  };
  // What the line appends to the table, if it is a record's and nothing is
  // wrong with it, where it stands. The table has no record more for it, at
  // most parts of one.
  std::optional<Row> Read(std::string_view line);

 private:
  // The last name that a spec's records had.
  struct LastId {
    int64_t iteration = -1;
    int64_t call = -1;
    Pass pass = Pass::kForward;
    uint32_t number = 0;
  };
  using Form = std::pair<uint32_t, uint32_t>;            // kind, leg
  using Place = std::tuple<uint32_t, int64_t, int64_t>;  // kind, batch, row

  // What was looked up last for a kind of specs, which is what its next record
  // mostly asks for again.
  struct LastParts {
    std::optional<uint32_t> leg;
    uint32_t form = 0;
    std::optional<std::pair<int64_t, int64_t>> lies;  // batch, row
    uint32_t place = 0;
  };

  bool InRange(const PlainRecordLine& line) const;
  bool RepeatsEarlierOne(const PlainRecordLine& line) const;
  std::optional<RecordTable::Parts> PartsOf(const PlainRecordLine& line,
                                            Pass pass);
  uint32_t NumberOfLeg(std::string_view leg);
  // Sets both numbers of `last`, or gives false if no record can be so.
  bool LookUp(const PlainRecordLine& line, Pass pass, uint32_t kind,
              uint32_t leg, LastParts* last);

  const RankMeta& meta_;
  const KnownSpecs& specs_;
  RecordTable& table_;
  std::vector<LastId> ids_;  // by spec
  TensorId id_;              // to look for, with room for names
  std::map<Form, uint32_t> forms_;
  std::map<Place, uint32_t> places_;
  std::vector<LastParts> last_;  // by kind
  // Of this object.
  std::map<std::string, uint32_t, std::less<>> legs_;
  decltype(legs_)::const_iterator last_leg_ = legs_.end();
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_PLAIN_RECORDS_H_
