"""Runs the scheduler without a server: loads in virtual time, thousands of steps in milliseconds."""

from dataclasses import dataclass, field
from random import Random

from autotune.simulator import backends, memory
from autotune.simulator.arguments import read_serve_arguments
from autotune.simulator.hardware_profiles import HARDWARE
from autotune.simulator.model_profiles import model_profile
from autotune.simulator.noise import Noise
from autotune.simulator.performance import StepModel, StepSettings
from autotune.simulator.profiles import KV_CACHE_FACTORS
from autotune.simulator.scheduler import Scheduler, Work
from autotune.simulator.settings import resolve
from autotune.simulator.switches import Switches

SPARK = HARDWARE["dgx-spark"]
NVFP4 = "nvidia/Qwen3.6-35B-A3B-NVFP4"
MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')


def settings_of(*flags, model=NVFP4, hardware=SPARK):
    return resolve(read_serve_arguments([model, *flags]), hardware, model_profile(model))


def memory_of(*flags, model=NVFP4, hardware=SPARK):
    return memory.plan(settings_of(*flags, model=model), hardware, model_profile(model))


def backends_of(*flags, model=NVFP4, hardware=SPARK):
    settings = settings_of(*flags, model=model)
    return backends.choose(settings.given, hardware, model_profile(model), settings.kv_cache_dtype)


def scheduler_of(*flags, switches=None):
    settings = settings_of(*flags)
    switches = switches or Switches(noise=0)
    speculation = settings.speculation
    step_settings = StepSettings(
        draft_read_gb=speculation.draft_read_gb if speculation else 0.0,
        kv_factor=KV_CACHE_FACTORS[settings.kv_cache_dtype],
        capture_sizes=settings.capture_sizes,
    )
    return Scheduler(
        limits=settings.limits,
        memory=memory_of(*flags),
        speculation=speculation,
        model=StepModel(SPARK, model_profile(NVFP4), step_settings),
        noise=Noise("7", switches),
        prefix_caching=settings.prefix_caching,
        jit_spike=switches.jit_spike,
    )


@dataclass
class Load:
    """A closed loop: each stream asks again as soon as it has been answered."""

    scheduler: Scheduler
    streams: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    done: list[Work] = field(default_factory=list)
    clock_s: float = 0.0
    most_running: int = 0
    _asked: int = 0
    _random: Random = field(default_factory=lambda: Random(1))

    def run(self):
        for _ in range(self.streams):
            self._ask()
        while self.scheduler.busy:
            step = self.scheduler.begin(self.clock_s)
            assert step is not None
            self.most_running = max(self.most_running, len(self.scheduler.running))
            self.clock_s += step.seconds
            self.scheduler.finish(step, self.clock_s)
        return self

    def tokens(self, work, clock_s):
        pass

    def finished(self, work, clock_s):
        self.done.append(work)
        self._ask()

    @property
    def throughput(self):
        return sum(work.produced for work in self.done) / self.clock_s

    def _ask(self):
        if self._asked < self.requests:
            self._asked += 1
            self.scheduler.add(
                Work(
                    prompt_tokens=self.prompt_tokens,
                    output_tokens=self.output_tokens,
                    content=self._random.getrandbits(30),
                    block_keys=(),
                    sink=self,
                    arrived_s=self.clock_s,
                )
            )
