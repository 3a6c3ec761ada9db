#include "src/align/collective.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/align/attribute.h"

namespace ttrace::collective_test {
namespace {

constexpr const char* kReduce =
    R"({"rank":1,"iteration":0,"order":4,"kind":"all_reduce","op":"sum",)"
    R"("members":[0,1],"phase":"backward","fqn":"fc","micro_batch":2,)"
    R"("elements":12,"dtype":"bfloat16","parameters":["a","b"]})";

// The note with one piece of its text replaced.
Note Changed(const std::string& from, const std::string& to) {
  std::string text = kReduce;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return {1, "collective", text};
}

TEST(Collectives, AllFieldsAreRead) {
  const CollectiveLog log =
      ReadCollectives(std::vector<Note>{{1, "collective", kReduce}});
  ASSERT_EQ(log.seen.size(), 1U);
  const Collective& c = log.seen.front();
  EXPECT_EQ(c.rank, 1);
  EXPECT_EQ(c.iteration, 0);
  EXPECT_EQ(c.order, 4);
  EXPECT_EQ(c.kind, "all_reduce");
  EXPECT_EQ(c.op, "sum");
  EXPECT_EQ(c.members, (std::vector<int>{0, 1}));
  EXPECT_EQ(c.phase, "backward");
  EXPECT_EQ(c.fqn, "fc");
  EXPECT_EQ(c.micro_batch, 2);
  EXPECT_EQ(c.elements, 12);
  EXPECT_EQ(c.dtype, "bfloat16");
  EXPECT_EQ(c.parameters, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(c.Sums());
  EXPECT_EQ(log.malformed, 0);
}

TEST(Collectives, WhatMakesNoSenseIsSkippedAndCounted) {
  const std::vector<Note> bad = {
      {1, "collective", "no json"},
      {1, "collective", "[]"},
      Changed(R"("rank":1)", R"("rank":0)"),  // another rank's word
      Changed(R"("rank":1)", R"("rank":"1")"),
      Changed(R"("iteration":0)", R"("iteration":-1)"),
      Changed(R"("iteration":0)", R"("iteration":4294967296)"),
      Changed(R"("order":4)", R"("order":18446744073709551615)"),
      Changed(R"("elements":12)", R"("elements":1.5)"),
      Changed(R"("kind":"all_reduce")", R"("kind":"magic")"),
      Changed(R"("phase":"backward")", R"("phase":"later")"),
      Changed(R"([0,1])", R"([1,0])"),
      Changed(R"([0,1])", R"([0,2])"),  // without itself
      Changed(R"([0,1])", R"([0,"1"])"),
      Changed(R"([0,1])", R"([])"),
      Changed(R"(["a","b"])", R"(["a",1])"),
      Changed(R"("fqn":"fc",)", ""),
  };
  const CollectiveLog log = ReadCollectives(bad);
  EXPECT_TRUE(log.seen.empty());
  EXPECT_EQ(log.malformed, static_cast<int64_t>(bad.size()));
}

TEST(Collectives, AnIterationIsCompleteIfAllOfItsNotesAreThere) {
  const auto count = [](const std::string& text) {
    return Note{1, "collectives", text};
  };
  const Note reduce{1, "collective", kReduce};
  const std::pair<int, int> key{1, 0};
  EXPECT_TRUE(
      ReadCollectives(
          std::vector<Note>{reduce, count(R"({"iteration":0,"count":1})")})
          .complete.contains(key));
  // None, and sure of it: that is what makes "no reduction was made" a fact.
  EXPECT_TRUE(
      ReadCollectives(std::vector<Note>{count(R"({"iteration":0,"count":0})")})
          .complete.contains(key));
  EXPECT_FALSE(
      ReadCollectives(std::vector<Note>{reduce}).complete.contains(key));
  EXPECT_FALSE(
      ReadCollectives(
          std::vector<Note>{reduce, count(R"({"iteration":0,"count":2})")})
          .complete.contains(key));
  EXPECT_FALSE(
      ReadCollectives(
          std::vector<Note>{
              reduce,
              count(R"({"iteration":0,"count":1,"failed":["KeyError: 1"]})")})
          .complete.contains(key));
}

TEST(Collectives, TheyAreSortedAndWhatCannotBeSeenIsKept) {
  const CollectiveLog log = ReadCollectives(std::vector<Note>{
      {1, "collective", kReduce},
      Changed(R"("order":4)", R"("order":0)"),
      {0, "collectives_not_seen", R"({"phase":"reduction","reason":"C++"})"},
      {0, "collectives_not_seen", R"({"phase":1})"},
      {0, "notice", R"({"text":"hello"})"}});
  ASSERT_EQ(log.seen.size(), 2U);
  EXPECT_EQ(log.seen[0].order, 0);
  EXPECT_EQ(log.not_seen.at("reduction"), "C++");
  EXPECT_EQ(log.malformed, 1);
}

TEST(Collectives, OnlySumsAndMeansOfTermsSum) {
  Collective c;
  c.kind = "all_reduce";
  c.op = "max";
  EXPECT_FALSE(c.Sums());
  c.op = "avg";
  EXPECT_TRUE(c.Sums());
  c.kind = "all_gather";
  EXPECT_FALSE(c.Sums());
}

TEST(Attributes, OneForAllRanksThatSaySo) {
  const auto note = [](int rank, const std::string& json) {
    return Note{rank, "attribute", json};
  };
  const std::vector<Attribute> found = ReadAttributes(std::vector<Note>{
      note(1, R"({"fqn":"n","name":"sp","value":false,"expected":true})"),
      note(0, R"({"fqn":"n","name":"sp","value":false,"expected":true})"),
      note(0, R"({"fqn":"w","name":"factor","value":1.0,"expected":0.5,)"
              R"("of":"bucket"})"),
      note(0, R"({"fqn":"w"})"),
      note(0, "broken"),
  });
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].value, "1.0");
  EXPECT_TRUE(found[0].of_bucket);
  EXPECT_FALSE(found[1].of_bucket);
  EXPECT_EQ(found[0].expected, "0.5");
  EXPECT_EQ(found[1].value, "False");
  EXPECT_EQ(found[1].expected, "True");
  EXPECT_EQ(found[1].ranks, (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace ttrace::collective_test
