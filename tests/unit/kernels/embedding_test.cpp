#include "compact/kernels/embedding.h"

#include <algorithm>

#include "compact/kernels/elementwise.h"
#include "unit/kernels/op_testing.h"

namespace compact {
namespace {
using namespace testing;

std::vector<std::int32_t> random_ids(std::int64_t n, std::int32_t V, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(generator() % static_cast<std::uint32_t>(V));
  return ids;
}

constexpr std::int64_t kMemory = std::int64_t{8} << 20;  // of a bench: the emulation fills all of it
const std::int64_t kSizes[][2] = {{1, 1}, {5, 3}, {17, 33}, {300, 130}, {70, 704}};  // N, C
constexpr DType kTypes[] = {DType::F32, DType::BF16};

TEST(Embedding, ForwardCopiesTheNamedRows) {
  for (const auto& [N, C] : kSizes)
    for (DType type : kTypes) {
      Bench bench(test_device(), kMemory);
      const std::vector<std::int32_t> named = random_ids(N, 11, 3);
      const Tensor ids = bench.ids(named), table = bench.random({11, C}, 1, 1, type),
                   out = bench.strided({N, C}, 8, type);
      embedding_forward(bench.context, ids, table, out);
      for (std::int64_t n = 0; n < N; ++n)
        EXPECT_TRUE(same_bits(values(out.row_range(n, 1)),
                              values(table.row_range(named[static_cast<std::size_t>(n)], 1))));
      expect_padding_untouched(out, 8);
    }
}

TEST(Embedding, BackwardAddsInTheOrderOfTheTokens) {
  for (const auto& [N, C] : kSizes)
    for (DType type : kTypes) {
      Bench bench(test_device(), kMemory);
      const std::vector<std::int32_t> named = random_ids(N, 11, 3);
      const Tensor ids = bench.ids(named), dout = bench.strided({N, C}, 2, type),
                   dtable = bench.random({11, C}, 5);
      bench.randomize(dout, 4);
      std::vector<float> want = values(dtable);
      const std::vector<float> added = values(dout);
      for (std::int64_t n = 0; n < N; ++n)
        for (std::int64_t c = 0; c < C; ++c)
          want[static_cast<std::size_t>(named[static_cast<std::size_t>(n)] * C + c)] +=
              added[static_cast<std::size_t>(n * C + c)];
      embedding_backward(bench.context, ids, dout, dtable);
      EXPECT_TRUE(same_bits(values(dtable), want));
    }
}

TEST(Embedding, BackwardAddsTheSumOfAnIdOnceToABf16Table) {
  for (const auto& [N, C] : kSizes)
    for (DType type : kTypes) {
      Bench bench(test_device(), kMemory);
      const std::vector<std::int32_t> named = random_ids(N, 11, 3);
      const Tensor ids = bench.ids(named), dout = bench.strided({N, C}, 2, type),
                   dtable = bench.random({13, C}, 5, 1, DType::BF16), nan_row = dtable.row_range(12, 1);
      bench.randomize(dout, 4);
      fill(bench.context, nan_row, NAN);
      const std::vector<float> before = values(dtable), added = values(dout);
      std::vector<float> want = before;
      for (std::int32_t id = 0; id < 11; ++id) {
        if (std::find(named.begin(), named.end(), id) == named.end()) continue;
        for (std::int64_t c = 0; c < C; ++c) {
          float sum = 0;
          for (std::int64_t n = 0; n < N; ++n)
            if (named[static_cast<std::size_t>(n)] == id) sum += added[static_cast<std::size_t>(n * C + c)];
          float& at = want[static_cast<std::size_t>(id * C + c)];
          at = to_float(nearest_bf16(at + sum));
        }
      }
      embedding_backward(bench.context, ids, dout, dtable);
      EXPECT_TRUE(same_bits(values(dtable), want));
    }
}

TEST(Embedding, BackwardTakesRunsOfAnyLength) {
  // Tokens of an id: fewer than one CUDA warp takes, as many, more, and many tiles of them; so many in all
  // that they are sorted in several tiles.
  const std::int64_t lengths[] = {1, 63, 64, 65, 128, 31, 2300, 64, 2, 127};
  std::vector<std::int32_t> named;
  for (std::int32_t id = 0; id < 10; ++id)
    named.insert(named.end(), static_cast<std::size_t>(lengths[id]), id);
  std::shuffle(named.begin(), named.end(), std::mt19937(1));
  const std::int64_t N = static_cast<std::int64_t>(named.size()), C = 264;
  for (DType type : kTypes)
    for (DType table_type : kTypes)
      for (std::int64_t padding : {0, 2}) {
        Bench bench(test_device(), kMemory);
        const Tensor ids = bench.ids(named), dout = bench.strided({N, C}, padding, type),
                     dtable = bench.random({12, C}, 5, 1, table_type);
        bench.randomize(dout, 4);
        std::vector<float> want = values(dtable);
        const std::vector<float> before = want, added = values(dout);
        if (table_type == DType::BF16) std::fill(want.begin(), want.end(), 0.0f);
        for (std::int64_t i = 0; i < N * C; ++i)
          want[static_cast<std::size_t>(named[static_cast<std::size_t>(i / C)] * C + i % C)] +=
              added[static_cast<std::size_t>(i)];
        if (table_type == DType::BF16)
          for (std::size_t i = 0; i < want.size(); ++i) want[i] = to_float(nearest_bf16(before[i] + want[i]));
        embedding_backward(bench.context, ids, dout, dtable);
        EXPECT_TRUE(same_bits(values(dtable), want))
            << name_of(type) << " to " << name_of(table_type) << " padding " << padding;
      }
}

TEST(Embedding, BackwardIsTheSameForAnyThreads) {
  for (DType type : kTypes)
    for (DType table_type : kTypes) {
      Bench bench(test_device(), kMemory);
      const Tensor ids = bench.ids(random_ids(700, 9, 1)), dout = bench.random({700, 101}, 2, 1, type);
      const Tensor dtable = bench.make({9, 101}, table_type);
      expect_same_bits_for_any_threads([&] {
        zero(bench.context, dtable);
        embedding_backward(bench.context, ids, dout, dtable);
        return values(dtable);
      });
    }
}

TEST(Embedding, GradientEqualsDifferenceQuotient) {
  Bench bench(test_device(), kMemory);
  const Tensor ids = bench.ids(random_ids(40, 7, 1)), table = bench.random({7, 5}, 2),
               out = bench.make({40, 5});
  const std::vector<float> weights = random_values(40 * 5, 3);
  const Tensor dtable = bench.make({7, 5});
  zero(bench.context, dtable);
  embedding_backward(bench.context, ids, bench.of({40, 5}, weights), dtable);
  expect_gradient(table, values(dtable), [&] {
    embedding_forward(bench.context, ids, table, out);
    return dot(values(out), weights);
  });
}

TEST(Embedding, NumericCase) {
  COMPACT_NUMERIC_CASE(numeric, "embedding_backward");
  const double tolerance = numeric["tolerance"]["fp32"];
  const nlohmann::json &in = numeric["inputs"], &many = in["many"];
  Bench bench(test_device(), kMemory);
  const std::int64_t V = in["V"], C = in["dout"]["shape"][1];
  const auto named = in["ids"].get<std::vector<std::int32_t>>();
  const Tensor dtable = bench.make({V, C});
  zero(bench.context, dtable);
  embedding_backward(bench.context, bench.ids(named),
                     bench.of({static_cast<std::int64_t>(named.size()), C}, numbers(in["dout"])), dtable);
  expect_close(dtable, numbers(numeric["expected"]["dE"]), tolerance);

  const std::int64_t times = many["times"];
  const Tensor ones = bench.make({times, 1});
  fill(bench.context, ones, many["gradient"]);
  for (DType type : kTypes) {
    const Tensor sum = bench.make({V, 1}, type);
    zero(bench.context, sum);
    embedding_backward(bench.context,
                       bench.ids(std::vector<std::int32_t>(static_cast<std::size_t>(times), many["id"])),
                       ones, sum);
    const float want = numeric["expected"]["many"]["sum"];
    EXPECT_EQ(values(sum)[many["id"].get<std::size_t>()],
              type == DType::BF16 ? to_float(nearest_bf16(want)) : want);
  }
}

TEST(Embedding, PlanEqualsRun) {
  for (DType type : kTypes)
    expect_plan_equals_run([&](Bench& bench) {
      const Tensor ids = bench.ids({1, 0}), table = bench.random({3, 4}, 1, 1, type),
                   out = bench.make({2, 4}, type);
      embedding_forward(bench.context, ids, table, out);
      embedding_backward(bench.context, ids, out, table);
    });
}

TEST(Embedding, RefusesWhatDoesNotFitTheTable) {
  Bench bench(test_device(), kMemory);
  const Tensor table = bench.random({3, 4}, 1), out = bench.make({2, 4});
  if (!on_cuda()) {  // there the host cannot read ids: they are checked where they come from
    EXPECT_THROW(embedding_forward(bench.context, bench.ids({1, 3}), table, out), std::logic_error);
    EXPECT_THROW(embedding_backward(bench.context, bench.ids({-1, 0}), out, table), std::logic_error);
  }
  EXPECT_THROW(embedding_forward(bench.context, bench.ids({1}), table, out), std::logic_error);
  EXPECT_THROW(embedding_forward(bench.context, bench.ids({1, 2}), table, bench.make({2, 4}, DType::BF16)),
               std::logic_error);
}

}  // namespace
}  // namespace compact
