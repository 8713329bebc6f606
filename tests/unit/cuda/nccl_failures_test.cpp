#include <chrono>
#include <functional>
#include <vector>

#include "unit/cuda/nccl_testing.h"

/// Ranks that fail, hang or disagree in the stand-in of NCCL.
namespace compact {
namespace {

using testing::kChecked;
using testing::kGraph;
using testing::kNoGraph;
using testing::Nccl;
using testing::Rank;
using testing::RankFault;

class NcclFailures : public Nccl {
 protected:
  void SetUp() override {
    Nccl::SetUp();
    if (!testing::is_emulated()) GTEST_SKIP() << "about ranks that fail";
  }
};

TEST_F(NcclFailures, AnErrorOfNcclEndsTheRun) {
  const auto errors = run(
      2, kGraph,
      [](Rank& r) {
        const Tensor x = r.filled(4, 1);
        r.all_reduce(x);
        r.queue.wait();
        double all_are_there = 0;
        r.ranks->sum({&all_are_there, 1});
        if (r.rank() == 0) {
          testing::set_rank_fault(1, RankFault::Hangs);
          testing::set_rank_fault(0, RankFault::Reports);
        }
        r.ranks->sum({&all_are_there, 1});
        for (int i = 0; i < 3; ++i) {
          r.queue.step([&] {
            r.all_reduce(x);
            r.wait();
          });
          r.queue.wait();
        }
      },
      1);
  EXPECT_NE(errors[0].find("rank 0: "), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("remote process exited"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("NCCL_DEBUG=WARN"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1], "");
}

TEST_F(NcclFailures, PatienceEnds) {
  for (const cuda::QueueOptions& options : {kGraph, kNoGraph, kChecked}) {
    testing::set_rank_fault(1, RankFault::None);
    const auto start = std::chrono::steady_clock::now();
    const auto errors = run(
        2, options,
        [](Rank& r) {
          const Tensor x = r.filled(4, 1);
          for (int i = 0; i < 4; ++i) {
            double all_are_there = 0;
            r.ranks->sum({&all_are_there, 1});
            if (i == 3) testing::set_rank_fault(1, RankFault::Hangs);  // a graph runs by then
            r.queue.step([&] {
              r.all_reduce(x);
              r.wait();
            });
            r.queue.wait();
          }
          FAIL() << "a rank that hangs was not missed";
        },
        0.5);
    EXPECT_NE(errors[0].find("rank 0 waits for the cards of other ranks"), std::string::npos) << errors[0];
    EXPECT_NE(errors[1], "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST_F(NcclFailures, ARankThatDoesNotStartIsMissed) {
  testing::set_rank_fault(1, RankFault::Hangs);
  const auto errors = run(
      2, kGraph, [](Rank&) { FAIL() << "started alone"; }, 0.3);
  for (const std::string& error : errors)
    EXPECT_NE(error.find("waits for the cards of other ranks"), std::string::npos) << error;
}

TEST_F(NcclFailures, RanksThatDisagreeAreFound) {
  const std::vector<std::pair<std::function<void(Rank&, const Tensor&)>, std::string>> cases = {
      {[](Rank& r, const Tensor& t) { r.all_reduce(t.slice(0, r.rank() == 0 ? 8 : 6)); }, "different counts"},
      {[](Rank& r, const Tensor& t) {
         r.rank() == 0 ? r.all_reduce(t) : r.gather(t.reshaped({8, 1}));
       },
       "different operations"},
      {[](Rank& r, const Tensor& t) {
         r.all_reduce(Tensor(t.data, {2}, r.rank() == 0 ? DType::F32 : DType::F64));
       },
       "different types"},
  };
  for (const auto& [call, words] : cases)
    for (const std::string& error : run(2, kNoGraph, [&](Rank& r) {
           const Tensor t = r.filled(8, 1);
           call(r, t);
           r.wait();
           r.queue.wait();
         }))
      // The runtime's own text of the error is the stand-in's.
      EXPECT_NE(error.find(words), std::string::npos) << error;
}

// A rank's failure must not leave its thread where the others do not come.
TEST_F(NcclFailures, ARankThatThrowsLeaves) {
  const auto errors = run(
      2, kGraph,
      [](Rank& r) {
        const Tensor x = r.filled(4, 1);
        if (r.rank() == 1) throw RunError("planted");
        r.all_reduce(x);
        r.wait();
        r.queue.wait();
      },
      0.5);
  EXPECT_EQ(errors[1], "planted");
  EXPECT_NE(errors[0].find("waits for the cards"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace compact
