#include "src/report/html/mesh_places.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "src/report/html/mesh_drawing.h"

namespace ttrace::mesh_places_test {
namespace {

TEST(MeshPlaces, AreThoseOfTheGridElseOfItsWords) {
  ResultFile::Side side;
  side.mesh = "pp=1 dp=2 tp=2";
  side.world_size = 4;
  const MeshPlaces words = PlacesOfSide(side);
  EXPECT_TRUE(words.assumed);
  EXPECT_EQ(PlaceOfRank(words, 2), "dp 1, tp 0");
  side.grids = {{"mesh", {{"tp", 2}, {"dp", 2}}, {{0, 0}, {0, 1}, {1, 0}, {}}}};
  const MeshPlaces grid = PlacesOfSide(side);
  EXPECT_FALSE(grid.assumed);
  EXPECT_EQ(PlaceOfRank(grid, 2), "tp 1, dp 0");
  EXPECT_EQ(PlaceOfRank(grid, 3), "");
  EXPECT_EQ(PlaceOfRank(grid, 4), "");
  // A mesh of other size than the world is not known.
  side.grids.clear();
  side.world_size = 3;
  EXPECT_TRUE(PlacesOfSide(side).axes.empty());
  side.mesh = "dp=99999999999999999999";
  EXPECT_TRUE(PlacesOfSide(side).axes.empty());
}

TEST(MeshPlaces, WhatRanksHaveInCommonIsSaidIfTheyAreAllOfIt) {
  ResultFile::Side side;
  side.mesh = "dp=2 tp=2";
  side.world_size = 4;
  const MeshPlaces places = PlacesOfSide(side);
  EXPECT_EQ(CommonPlaces(places, {1, 3}), "every rank with tp 1");
  EXPECT_EQ(CommonPlaces(places, {0, 1, 2, 3}), "every rank");
  EXPECT_EQ(CommonPlaces(places, {0, 3}), "");
  EXPECT_EQ(CommonPlaces(places, {1}), "");
  EXPECT_EQ(CommonPlaces(places, {1, 9}), "");
}

TEST(MeshPlaces, SizesThatAreNoneAreNotBelieved) {
  ResultFile::Side side;
  side.mesh = "dp=2";
  side.world_size = 2;
  for (const int64_t size : {int64_t{0}, int64_t{-3}, int64_t{1} << 50}) {
    side.grids = {{"mesh", {{"tp", 2}, {"x", size}}, {{0, 0}, {1, 0}}}};
    EXPECT_EQ(PlaceOfRank(PlacesOfSide(side), 1), "dp 1") << size;
  }
  // Another way to lay the ranks out is not the mesh.
  side.grids = {{"experts", {{"ep", 2}}, {{1}, {0}}}};
  EXPECT_EQ(PlaceOfRank(PlacesOfSide(side), 1), "dp 1");
}

// Where each square stands.
std::vector<std::string> SquaresOf(const std::string& svg) {
  std::vector<std::string> out;
  const std::regex square("<rect class=s[0-9]+ (x=[0-9]+ y=[0-9]+) ");
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), square);
       at != std::sregex_iterator(); ++at) {
    out.push_back((*at)[1]);
  }
  return out;
}

TEST(MeshDrawing, EachRankHasAPlaceOfItsOwn) {
  ResultFile::Side side;
  for (const char* mesh : {"pp=4 dp=32 tp=8", "dp=1024", "tp=2 dp=512", "odd",
                           "a=2 b=2 c=2 d=2 e=2 f=2 g=2 h=2 i=2 j=2"}) {
    side.mesh = mesh;
    side.world_size = 1024;
    const auto squares =
        SquaresOf(MeshSvg(std::vector<RankMark>(1024), PlacesOfSide(side)));
    EXPECT_EQ(squares.size(), 1024u) << mesh;
    EXPECT_EQ(std::set(squares.begin(), squares.end()).size(), 1024u) << mesh;
  }
  // Ranks that stand outside of their grid are drawn one after the other.
  side.mesh = "";
  side.world_size = 3;
  side.grids = {{"mesh", {{"tp", 2}}, {{0}, {7}, {-1}}}};
  const auto squares =
      SquaresOf(MeshSvg(std::vector<RankMark>(3), PlacesOfSide(side)));
  EXPECT_EQ(std::set(squares.begin(), squares.end()).size(), 3u);
}

TEST(MeshDrawing, WhatDoesNotFitBelowStandsBesideUnderItsPlace) {
  ResultFile::Side side;
  side.mesh = "pp=4 dp=32 tp=8";
  side.world_size = 1024;
  std::vector<RankMark> marks(1024);
  marks[515] = {2, 1, true};
  const std::string svg = MeshSvg(marks, PlacesOfSide(side));
  for (const char* text : {">pp 0</text>", ">pp 3</text>",
                           "rank 515 (pp 2, dp 0, tp 3): 2 tensors out of "
                           "bounds; other copies of 1 tensor"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_NE(svg.find("class=ring"), std::string::npos);
  EXPECT_EQ(svg.find("rank 514"), std::string::npos);
}

}  // namespace
}  // namespace ttrace::mesh_places_test
