#include "compact/memory/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "compact/core/error.h"
#include "compact/memory/activation_store.h"

namespace compact {
namespace {

std::uintptr_t address(const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.data); }

TEST(Arena, PartsDoNotOverlapAndAreAligned) {
  Arena arena(Device::Cpu, 4096);
  const Tensor weight = arena.persistent("w", {3}, DType::F32, Category::Weights);
  const Tensor kept = arena.saved("k", {5}, DType::F32);
  const Tensor scratch = arena.scratch("s", {7}, DType::F32);
  for (const Tensor& t : {weight, kept, scratch}) EXPECT_EQ(address(t) % 64, 0u);
  EXPECT_EQ(address(kept), address(weight) + 64);
  EXPECT_EQ(address(scratch), address(weight) + 4096 - 64);
  EXPECT_EQ(arena.ledger().current(), 3 * 64);
}

TEST(Arena, MarksFreeInReverse) {
  Arena arena(Device::Cpu, 4096);
  const Tensor first = arena.scratch("a", {16}, DType::F32);
  {
    ScratchScope scope(arena);
    arena.scratch("b", {16}, DType::F32);
    SavedScope saved(arena);
    arena.saved("c", {16}, DType::F32);
    EXPECT_EQ(arena.ledger().current(), 192);
  }
  EXPECT_EQ(arena.ledger().current(), 64);
  EXPECT_EQ(address(arena.scratch("d", {16}, DType::F32)), address(first) - 64);
}

TEST(Arena, FullArenaSaysWhatWhereAndWhatToDo) {
  Arena arena(Device::Cpu, 1024);
  arena.persistent("embedding", {128}, DType::F32, Category::Weights);
  try {
    arena.scratch("logits", {16, 16}, DType::F32);
    FAIL() << "no error";
  } catch (const RunError& e) {
    const std::string text = e.what();
    for (const char* word : {"logits", "[16, 16]", "workspace", "1.0 KiB", "weights", "512 B",
                             "memory.preset", "batch.micro_batch", "memory.logits_chunk_bytes"})
      EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
  }
  // What failed changed nothing: a smaller one still fits.
  EXPECT_NO_THROW(arena.scratch("small", {128}, DType::F32));
}

TEST(Arena, MoreMemoryThanTheSystemHasIsARunError) {
  EXPECT_THROW(Arena(Device::Cpu, std::int64_t{1} << 60), RunError);
}

TEST(Arena, PlanCountsTheSameWithoutMemory) {
  Arena plan(Device::Plan, Arena::kUnlimited), cpu(Device::Cpu, 1 << 20);
  for (Arena* arena : {&plan, &cpu}) {
    arena->persistent("w", {1000}, DType::BF16, Category::Weights);
    ScratchScope scope(*arena);
    arena->scratch("s", {77, 3}, DType::F32);
    arena->saved("a", {9}, DType::I32);
    arena->release_saved(0);
  }
  EXPECT_EQ(plan.ledger().peak(), cpu.ledger().peak());
  EXPECT_EQ(plan.ledger().at_peak(), cpu.ledger().at_peak());
  EXPECT_EQ(plan.scratch("huge", {std::int64_t{1} << 50}, DType::F32).data, nullptr);
}

TEST(Ledger, RemembersThePeakAndWhoLivedThen) {
  Arena arena(Device::Plan, Arena::kUnlimited);
  arena.persistent("w", {16}, DType::F32, Category::Weights);
  {
    ScratchScope scope(arena);
    arena.scratch("large", {160}, DType::F32);
  }
  arena.saved("small", {16}, DType::F32);
  const Ledger& ledger = arena.ledger();
  EXPECT_EQ(ledger.peak(), 64 + 640);
  EXPECT_EQ(ledger.current(), 128);
  EXPECT_EQ(ledger.at_peak()[static_cast<std::size_t>(Category::Workspace)], 640);
  EXPECT_EQ(ledger.at_peak()[static_cast<std::size_t>(Category::Activations)], 0);
  ASSERT_EQ(ledger.live_at_peak().size(), 2u);
  EXPECT_EQ(ledger.live_at_peak()[1].name, "large");
  EXPECT_EQ(std::accumulate(ledger.at_peak().begin(), ledger.at_peak().end(), std::int64_t{0}),
            ledger.peak());
}

TEST(ActivationStore, PlacesTensorsByPolicy) {
  Arena arena(Device::Plan, Arena::kUnlimited);
  EXPECT_TRUE(take(arena, Policy::Absent, "a", {4}, DType::F32).empty());
  const std::size_t saved = arena.saved_mark(), scratch = arena.scratch_mark();
  take(arena, Policy::Keep, "k", {4}, DType::F32);
  EXPECT_EQ(arena.saved_mark(), saved + 1);
  take(arena, Policy::Recompute, "r", {4}, DType::F32);
  take(arena, Policy::Project, "p", {4}, DType::F32);
  EXPECT_EQ(arena.scratch_mark(), scratch + 2);
}

TEST(ActivationStore, PresetsAreFoundByName) {
  for (Preset p : {Preset::Paper, Preset::Lean, Preset::Tight, Preset::Block})
    EXPECT_EQ(preset_from(name_of(p)), p);
  EXPECT_THROW(preset_from("smallest"), InputError);
}

// Only an input that compressed weights alone read may shrink to z.
TEST(ActivationStore, PaperProjectsOnlyWhatIsCompressed) {
  const BlockPolicies p = block_policies(Preset::Paper, {true, false, true});
  EXPECT_EQ(p.normed1, Policy::Project);
  EXPECT_EQ(p.normed2, Policy::Keep);
  EXPECT_EQ(p.product, Policy::Project);
  EXPECT_EQ(p.activation, Policy::Keep);
  EXPECT_EQ(block_policies(Preset::Lean, {true, true, true}).product, Policy::Recompute);
}

}  // namespace
}  // namespace compact
