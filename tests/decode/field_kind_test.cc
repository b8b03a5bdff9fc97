#include "decode/field_kind.h"

#include "support/support.h"

namespace shardwise {
namespace {

using detail::field_kind;
using detail::FieldKind;

TEST(FieldKindTest, WhatFollowsTheLastDotDecides) {
  EXPECT_EQ(field_kind("png"), FieldKind::kImage);
  EXPECT_EQ(field_kind("left.JPG"), FieldKind::kImage);
  EXPECT_EQ(field_kind("webp"), FieldKind::kImage);
  EXPECT_EQ(field_kind("png.txt"), FieldKind::kText);
  EXPECT_EQ(field_kind("cls"), FieldKind::kInteger);
  EXPECT_EQ(field_kind("pickle"), FieldKind::kBytes);
  EXPECT_EQ(field_kind(""), FieldKind::kBytes);
  EXPECT_EQ(field_kind("pn"), FieldKind::kBytes);
}

}  // namespace
}  // namespace shardwise
