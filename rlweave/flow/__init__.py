"""Dataflow plans: how data and weights move in an algorithm, in ten lines, independent of where it runs.

A plan is a typed graph of named operators. It is composed by methods, checked before anything starts, and moved by a
scheduler one item at a time. PPO, DQN and A3C::

    def ppo(workers, learner, memory=None):
        rollouts = ParallelRollouts(workers).gather_sync()
        train = rollouts.for_each(ConcatBatches(min_steps=256)).for_each(TrainOneStep(learner, workers))
        return ReportMetrics(train, workers)

    def dqn(workers, learner, memory):
        store = ParallelRollouts(workers).gather_async().for_each(StoreToBuffer(memory))
        train = Replay(memory).for_each(TrainOneStep(learner, workers))
        return ReportMetrics(Union(store, train.rate_limit(samples_per_insert=8, min_size=64)), workers)

    def a3c(workers, learner, memory=None):
        grads = ParallelRollouts(workers).par_for_each(ComputeGradients()).gather_async()
        return ReportMetrics(grads.for_each(ApplyGradients(learner, workers)), workers)

`Worker`, `Learner` and `Memory` say what the objects must be able to do; nothing here knows an algorithm or a
deep-learning framework.
"""

from rlweave.flow.batch import PolicyBatches, SampleBatch
from rlweave.flow.collective import Collective, LostRankError
from rlweave.flow.counters import Counters, Every
from rlweave.flow.engine import ActorLost, Call, Clock, Engine, FakeClock, LocalEngine, SystemClock
from rlweave.flow.envelope import ABSORBED, END, NOT_READY, Envelope, ItemReference, Signal
from rlweave.flow.gradients import AverageGradients, ComputeGradients, Gradients
from rlweave.flow.keeping import MixInReplay, Prefetch
from rlweave.flow.learner import LearnerActor, TrainStats
from rlweave.flow.nesting import NestedPlan, PlanItem, PlanWorker
from rlweave.flow.operator import Operator
from rlweave.flow.plan import ReportMetrics
from rlweave.flow.protocols import (
    Batch,
    ComputesGradients,
    Episode,
    GradientLearner,
    Learner,
    Memory,
    PrioritizedMemory,
    Source,
    TakesWeights,
    TellsEpisodes,
    Worker,
)
from rlweave.flow.replay import ComputePriorities, StoreToBuffer, UpdatePriorities
from rlweave.flow.reports import Report
from rlweave.flow.resources import Resources
from rlweave.flow.shards import ReplayShards
from rlweave.flow.spread import AsOne, spread
from rlweave.flow.stream import ParallelReplay, ParallelRollouts, Replay, Select, Stream, Union
from rlweave.flow.supervision import FailureRule
from rlweave.flow.training import ApplyGradients, TrainOneStep
from rlweave.flow.transforms import ConcatBatches
from rlweave.flow.upstream import UpdateWeights
from rlweave.flow.workers import WorkerGroup, Workers

__all__ = [
    "ABSORBED",
    "END",
    "NOT_READY",
    "ActorLost",
    "ApplyGradients",
    "AsOne",
    "AverageGradients",
    "Batch",
    "Call",
    "Clock",
    "Collective",
    "ComputeGradients",
    "ComputePriorities",
    "ComputesGradients",
    "ConcatBatches",
    "Counters",
    "Engine",
    "Envelope",
    "Episode",
    "Every",
    "FailureRule",
    "FakeClock",
    "GradientLearner",
    "Gradients",
    "ItemReference",
    "Learner",
    "LearnerActor",
    "LocalEngine",
    "LostRankError",
    "Memory",
    "MixInReplay",
    "NestedPlan",
    "Operator",
    "ParallelReplay",
    "ParallelRollouts",
    "PlanItem",
    "PlanWorker",
    "PolicyBatches",
    "Prefetch",
    "PrioritizedMemory",
    "Replay",
    "ReplayShards",
    "Report",
    "ReportMetrics",
    "Resources",
    "SampleBatch",
    "Select",
    "Signal",
    "Source",
    "StoreToBuffer",
    "Stream",
    "SystemClock",
    "TakesWeights",
    "TellsEpisodes",
    "TrainOneStep",
    "TrainStats",
    "Union",
    "UpdatePriorities",
    "UpdateWeights",
    "Worker",
    "WorkerGroup",
    "Workers",
    "spread",
]
