from rlweave.flow import (
    LearnerActor,
    ParallelRollouts,
    Replay,
    ReportMetrics,
    Resources,
    StoreToBuffer,
    TrainOneStep,
    Union,
    WorkerGroup,
)
from tests.flow.fakes import FakeLearner, FakeMemory, FakeWorker, workers

EXPLAINED = """\
Operators
  operator           takes  gives                     placement         settings
  -----------------  -----  ------------------------  ----------------  ---------------------------------------
  parallel_rollouts  -      SampleBatch               3 actors (local)
  gather_async       Any    SampleBatch               driver            num_async=2
  store_to_buffer    Batch  SampleBatch               driver            FakeMemory
  replay             -      SampleBatch               driver            FakeMemory, min_size=1
  learn              Batch  TrainStats                driver            FakeLearner, sends weights to 3 workers
  rate_limit         Any    TrainStats                driver            samples_per_insert=8, min_size=64
  queue              Any    TrainStats                driver            capacity=4, drop_oldest
  union              Any    SampleBatch | TrainStats  driver            round_robin, weights=[1, 1]
  report_metrics     Any    -                         driver

Edges
  from               to               items                     capacity  when full
  -----------------  ---------------  ------------------------  --------  -----------
  parallel_rollouts  gather_async     SampleBatch               6         block
  gather_async       store_to_buffer  SampleBatch               1         block
  replay             learn            SampleBatch               1         block
  learn              rate_limit       TrainStats                1         block
  rate_limit         queue            TrainStats                1         block
  store_to_buffer    union            SampleBatch               1         block
  queue              union            TrainStats                4         drop_oldest
  union              report_metrics   SampleBatch | TrainStats  1         block

Messages
  from             to                 what     capacity  when full
  ---------------  -----------------  -------  --------  -----------------------------
  store_to_buffer  replay             items    1000000   the memory's own
  learn            parallel_rollouts  weights  1         the newest replace older ones

Resources on a cluster
  operator           actors
  -----------------  -----------
  parallel_rollouts  3 x (1 CPU)
  in all             3 CPU
"""


def dqn() -> ReportMetrics:
    group, memory, learner = workers(3), FakeMemory(), FakeLearner()
    store = ParallelRollouts(group).gather_async(2).for_each(StoreToBuffer(memory))
    train = Replay(memory).for_each(TrainOneStep(learner, group)).named("learn")
    return ReportMetrics(Union(store, train.rate_limit(8, min_size=64).queue(4, "drop_oldest")), group)


def test_explain_lists_operators_types_edges_and_placement() -> None:
    assert dqn().explain() == EXPLAINED


def test_explain_tells_when_weights_go_nowhere() -> None:
    plan = ReportMetrics(ParallelRollouts(workers(1)).gather_sync().for_each(TrainOneStep(FakeLearner())))
    assert "FakeLearner, sends weights to nobody" in plan.explain()


def test_explain_shows_the_outputs_of_a_split() -> None:
    left, right = ParallelRollouts(workers(1)).par_for_each(lambda batch: batch).split(2, capacity=3)
    text = ReportMetrics(Union(left, right)).explain()
    assert "split[0]           union           Any          3         block" in text
    assert "split[1]" in text
    assert "at the actors (local)" in text


def test_explain_says_for_which_engine_and_what_its_actors_hold() -> None:
    group = WorkerGroup([FakeWorker] * 2, Resources(cpus=0.5))
    train = ParallelRollouts(group).gather_sync().for_each(TrainOneStep(LearnerActor(FakeLearner), group))
    plan = ReportMetrics(train, group)
    text = plan.explain("ray")
    assert "2 actors (ray)" in text
    assert "1 actor (ray)" in text
    lines = [line.split() for line in text.splitlines()[-3:]]
    assert lines == [
        ["parallel_rollouts", "2", "x", "(0.5", "CPU)"],
        ["train_one_step", "1", "x", "(1", "CPU)"],
        ["in", "all", "2", "CPU"],
    ]


def test_a_plan_without_messages_has_no_table_of_them() -> None:
    assert "Messages" not in ReportMetrics(ParallelRollouts(workers(1)).gather_sync()).explain()
