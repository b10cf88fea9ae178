#include <gtest/gtest.h>

#include <string>

#include "trace/check_trace.h"
#include "trace/signature.h"
#include "trace/trace_builder.h"

namespace llmprof {
namespace {

struct Described {
  explicit Described(const SignatureText& text) : shapes(trace, TraceBuilder(trace).signature(text)) {}
  Trace trace;
  SignatureShapes shapes;
};

TEST(Signature, ReadsTensorsListsAndScalars) {
  const Described d({.dims = "[[1, 512, 64], [], [[0], [1, 8, 2, 4]], []]",
                     .types = R"(["c10::BFloat16", "Scalar", "TensorList", "double"])"});
  const SignatureShapes& shapes = d.shapes;
  ASSERT_EQ(shapes.size(), 4);
  ASSERT_TRUE(shapes.tensor(0));
  EXPECT_EQ(shapes.tensor(0)->elements, 512 * 64);
  EXPECT_EQ(shapes.tensor(0)->back(2), 512);
  EXPECT_EQ(shapes.dtype(0), DType::kBf16);
  EXPECT_FALSE(shapes.tensor(1));
  EXPECT_FALSE(shapes.tensor(2));
  ASSERT_EQ(shapes.tensors(2).size(), 2U);
  EXPECT_EQ(shapes.tensors(2)[1].rank, 4);
  EXPECT_EQ(shapes.tensors(0).size(), 1U);
  EXPECT_TRUE(shapes.tensors(1).empty());
  ASSERT_TRUE(shapes.tensor(3));  // a tensor without dimensions
  EXPECT_EQ(shapes.tensor(3)->rank, 0);
  EXPECT_FALSE(shapes.tensor(4));
  EXPECT_FALSE(shapes.tensor(-1));
  EXPECT_EQ(d.trace.text(d.trace.inputs.text[2]), "TensorList");
}

TEST(Signature, ExpandedDimensionsAreReadOnce) {
  const std::string_view dims = "[[512, 4096], [[2, 3], [4, 5]]]", types = R"(["long int", "TensorList"])";
  const Described d({.dims = dims, .types = types, .strides = "[[1, 0], [[3, 1], [0, 1]]]"});
  EXPECT_EQ(d.shapes.tensor(0)->elements, 512 * 4096);
  EXPECT_EQ(d.shapes.tensor(0)->distinct, 512);
  EXPECT_EQ(d.shapes.tensors(1)[1].distinct, 5);
  for (const std::string_view strides : {"[[[[[[", "[[1, 0]]", "[[1, 0, 0], [[3, 1], [0, 1]]]", "[[1, 0], [[3, 1]]]"}) {
    const Described other({.dims = dims, .types = types, .strides = strides});  // strides only refine
    EXPECT_EQ(other.shapes.tensor(0)->distinct, 512 * 4096) << strides;
    EXPECT_EQ(other.trace.input_numbers.size(), 6U);
  }
}

TEST(Signature, WhatCannotBeReadIsKeptAsText) {
  std::string many = "[", listed = "[[";
  for (int i = 0; i < 200; ++i) many += i == 0 ? "[1]" : ",[1]";
  for (int i = 0; i < 5000; ++i) listed += i == 0 ? "[1]" : ",[1]";
  many += "]", listed += "]]";
  const std::string deep(100000, '[');
  const auto expect_unreadable = [](const SignatureText& text) {
    Trace trace;
    TraceBuilder builder(trace);
    builder.signature({.dims = "[[3, 4]]"});
    const SignatureId row = builder.signature(text);
    EXPECT_FALSE(SignatureShapes(trace, row).readable()) << text.dims.substr(0, 40);
    EXPECT_FALSE(SignatureShapes(trace, row).tensor(0));
    EXPECT_EQ(trace.text(trace.signatures.dims[row]), text.dims);
    EXPECT_EQ(trace.inputs.size(), 1U);  // nothing of it is left
    EXPECT_EQ(trace.input_numbers.size(), 2U);
    check_trace(trace);
    EXPECT_EQ(trace.diagnostics.total(), 0U);
  };
  for (const std::string_view dims :
       {"[[-1, 2]]", "[[1, 2]", "[[1, 2]]]", "[1, 2]", "[[[[1]]]]", "[[1, [2]]]", "[[[2], 1]]", "[[1.5]]",
        "[[99999999999999999999999]]", "[[4611686018427387904, 4]]", "[[1125899906842624, 2]]", "[[1,1,1,1,1,1,1,1,1]]",
        "{}", "[[1 2]]", "[[\"a\"]]"})
    expect_unreadable({.dims = dims});
  for (const std::string& dims : {deep, many, listed}) expect_unreadable({.dims = dims});
  expect_unreadable({.dims = "[[1], [2]]", .types = R"(["float"])"});
  expect_unreadable({.dims = "[[1]]", .types = R"(["float", "float"])"});
  expect_unreadable({.dims = "[[1]]", .types = R"(["float)"});
}

TEST(Signature, ValuesOfScalars) {
  const Described d({.dims = "[[], [], [], [], [], [], [2]]",
                     .concrete = R"(["", "-2", "True", "[14, 14]", "quote \" inside", "0.", "3", "9"])"});
  EXPECT_EQ(d.shapes.integer(1), -2);
  EXPECT_EQ(d.shapes.integers(1)->size(), 1U);
  EXPECT_TRUE(d.shapes.truth(1));
  EXPECT_TRUE(d.shapes.truth(2));
  EXPECT_FALSE(d.shapes.integer(2));
  EXPECT_EQ((*d.shapes.integers(3))[1], 14);
  EXPECT_FALSE(d.shapes.integer(3));
  EXPECT_EQ(d.trace.text(d.trace.inputs.text[5]), "0.");
  for (const int none : {-1, 0, 4, 5, 6, 7, 9}) EXPECT_FALSE(d.shapes.integers(none)) << none;
  EXPECT_FALSE(Described({.dims = "[[], []]", .concrete = "[\"False\", \"1"}).shapes.truth(0));
  EXPECT_FALSE(Described({.dims = "[[], []]", .concrete = "[\"1, 2\", \"[1, 2\"]"}).shapes.integers(1));
  EXPECT_EQ(Described({.dims = "", .concrete = "[\"1\"]"}).shapes.size(), 0);
}

TEST(Signature, JoiningCopiesInputsOnce) {
  const SignatureText cat{.dims = "[[[1, 2], [3, 4]], []]", .types = R"(["TensorList", "c10::Odd"])"};
  Trace trace, part;
  TraceBuilder whole(trace), of_part(part);
  whole.text("only in the whole");
  whole.signature({.dims = "[[7]]"});
  of_part.signature(cat);
  of_part.signature({.dims = "[]"});
  for (int i = 0; i < 2; ++i) whole.append(part);
  ASSERT_EQ(trace.signatures.size(), 3U);
  EXPECT_EQ(trace.inputs.size(), 5U);
  EXPECT_EQ(SignatureShapes(trace, 1).tensors(0)[1].dims[1], 4);
  EXPECT_EQ(trace.text(trace.inputs.text[4]), "c10::Odd");
  EXPECT_TRUE(SignatureShapes(trace, 2).readable());
  EXPECT_EQ(whole.signature(cat), 1U);
  whole.append(part, {.share = false, .device = {}});
  EXPECT_EQ(SignatureShapes(trace, 3).tensors(0)[1].dims[1], 4);
  EXPECT_EQ(SignatureShapes(trace, 0).tensor(0)->dims[0], 7);
}

// What a file may say that no text does.
TEST(Signature, UnsoundTablesAreRepairedAndCounted) {
  const auto checked = [](auto&& change) {
    Trace trace;
    TraceBuilder builder(trace);
    builder.signature({.dims = "[[3, 4], [[5], [6]]]"});
    builder.signature({.dims = "[[7]]"});
    change(trace);
    check_trace(trace);
    const SignatureShapes shapes(trace, 0);
    for (int i = 0; i < shapes.size(); ++i) shapes.tensors(i);
    const uint64_t found = trace.diagnostics.count(DiagnosticId::kBadMetadata);
    check_trace(trace);
    EXPECT_EQ(trace.diagnostics.count(DiagnosticId::kBadMetadata), found);
    return std::pair(shapes.readable(), found);
  };
  EXPECT_EQ(checked([](Trace&) {}), std::pair(true, uint64_t{0}));
  EXPECT_EQ(checked([](Trace& t) { t.input_numbers.value[3] = -1; }), std::pair(false, uint64_t{1}));
  EXPECT_EQ(checked([](Trace& t) { t.input_numbers.value[0] = kMaxElements; }), std::pair(false, uint64_t{1}));
  EXPECT_EQ(checked([](Trace& t) { t.signatures.input_count[0] = INT32_MAX; }), std::pair(true, uint64_t{0}));
  EXPECT_EQ(checked([](Trace& t) { t.signatures.first_input[0] = 99; }), std::pair(true, uint64_t{1}));
  EXPECT_EQ(checked([](Trace& t) {
              t.input_numbers.resize(100);
              t.inputs.number_count[0] = INT32_MAX;
            }),
            std::pair(false, uint64_t{1}));
  EXPECT_EQ(checked([](Trace& t) { t.inputs.kind[0] = static_cast<InputKind>(99); }), std::pair(true, uint64_t{1}));
}

}  // namespace
}  // namespace llmprof
