#include "src/compare/cells/cell_sums.h"

#include <bit>
#include <cstring>
#include <string>

namespace ttrace {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(std::is_trivially_copyable_v<CellSums>);
// No padding: what is written is what the fields are.
static_assert(sizeof(CellSums) == 8 * sizeof(double) + 4 * sizeof(uint32_t));

}  // namespace

int64_t EncodedCellBytes(int64_t cells) {
  return static_cast<int64_t>(sizeof(double)) +
         cells * static_cast<int64_t>(sizeof(CellSums));
}

std::vector<std::byte> EncodeCells(const CellTable& table) {
  std::vector<std::byte> out(static_cast<size_t>(
      EncodedCellBytes(static_cast<int64_t>(table.cells.size()))));
  std::memcpy(out.data(), &table.element_scale, sizeof(double));
  if (!table.cells.empty()) {
    std::memcpy(out.data() + sizeof(double), table.cells.data(),
                table.cells.size() * sizeof(CellSums));
  }
  return out;
}

Result<CellTable> DecodeCells(std::span<const std::byte> bytes, int64_t cells) {
  if (static_cast<int64_t>(bytes.size()) != EncodedCellBytes(cells)) {
    return Error(ErrorCode::kCorrupt, std::to_string(bytes.size()) +
                                          " bytes are no table of " +
                                          std::to_string(cells) + " cells");
  }
  CellTable table;
  std::memcpy(&table.element_scale, bytes.data(), sizeof(double));
  table.cells.resize(static_cast<size_t>(cells));
  if (cells > 0) {
    std::memcpy(table.cells.data(), bytes.data() + sizeof(double),
                table.cells.size() * sizeof(CellSums));
  }
  return table;
}

}  // namespace ttrace
