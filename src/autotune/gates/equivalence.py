"""The gate that compares answers at temperature 0 with the baseline's.

Speculation should change nothing, but other kernels and other batch sizes round differently, and one
token that falls the other way changes the rest of an answer. So a difference is told, not punished.
What rejects is a collapse: answers that are empty, garbled or the same token over and over, simple
questions that the baseline answered and this one does not, drafts of which none is ever accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autotune.gates.answers import failed, find_request_problem, shown
from autotune.gates.asking import ROUNDING
from autotune.gates.comparing import count
from autotune.gates.likeness import Likeness, likeness
from autotune.gates.options import check_count, check_share, thinking_option
from autotune.gates.text_answers import judge_text
from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.outcome import CaseResult, Reference, Verdict
from autotune.protocols import Client
from autotune.system.metrics import scrape

_KNOWN = (
    ("sum", "What is 17 + 25? Answer with the number only.", "42"),
    ("product", "What is 6 times 7? Answer with the number only.", "42"),
    ("repeat", 'Repeat exactly this and nothing else: "blue lamp 7"', "blue lamp 7"),
    ("echo", 'Reply with exactly: "harbor"', "harbor"),
)
"""Questions with one short answer: a kernel that computes nonsense gets these wrong as well."""
_OPEN = (
    ("tides", "Explain in three sentences why there are tides."),
    ("story", "Tell a very short story about a lighthouse keeper."),
    ("python", "Write a Python function that returns the n-th Fibonacci number, without comments."),
    ("list", "List ten animals, one on each line."),
)
LOST_SHARE = 0.5
"""Of the simple answers that the baseline knew: to lose more than these is no rounding."""
FEWEST_DRAFTS = 64
"""Draft tokens before acceptance says anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalenceGate:
    """Answers at temperature 0 against the baseline's: a warning where they differ.

    min_identical: share of the answers that must be the baseline's to the letter; 0 warns only
    thinking: turns thinking on or off by `enable_thinking` of the chat template; left out, the
    template decides
    max_tokens: length of an answer; a longer one is compared as far as that
    strict_cold: has no effect, cold answers are not compared
    """

    min_identical: float = 0.0
    thinking: bool | None = None
    max_tokens: int = 96
    strict_cold: bool = False

    def __post_init__(self) -> None:
        check_share("min_identical", self.min_identical, zero=True)
        check_count("max_tokens", self.max_tokens)
        if self.thinking is not None and not isinstance(self.thinking, bool):
            raise ValueError(f"thinking is {self.thinking!r}: it must be true, false or left out")

    @property
    def name(self) -> str:
        return "equivalence"

    @property
    def moments(self) -> frozenset[str]:
        # One after the other and on an idle server: batches change the rounding.
        return frozenset(("warm",))

    async def check(
        self, client: Client, *, moment: str, reference: Reference | None = None
    ) -> Verdict:
        """Ask one question after the other, and compare."""
        asked = await self._ask(client)
        theirs = None if reference is None else reference.verdict(self.name, moment)
        known = {} if theirs is None else theirs.answers
        results = [_judged(name, reply, request, known) for name, request, reply in asked]
        results += await _find_dead_drafts(client)
        answers = {name: text for name, _, reply in asked if (text := _text(reply))}
        return self._conclude(moment, results, answers, known)

    async def _ask(self, client: Client) -> list[tuple[str, ChatRequest, ChatReply]]:
        questions = [(name, text) for name, text, _ in _KNOWN] + list(_OPEN)
        asked = []
        for name, text in questions:
            request = ChatRequest(
                messages=({"role": "user", "content": text},),
                max_tokens=self.max_tokens,
                extra=thinking_option(self.thinking),
            )
            asked.append((name, request, await client.chat(request)))
        return asked

    def _conclude(
        self,
        moment: str,
        results: Sequence[CaseResult],
        answers: Mapping[str, str],
        known: Mapping[str, str],
    ) -> Verdict:
        alike = likeness(answers, known)
        verdict = Verdict(
            gate=self.name,
            moment=moment,
            passed=not _collapsed(results, known),
            score=count(results).share,
            threshold=0.0,
            cases=tuple(results),
            answers=answers,
        )
        return verdict if alike is None else self._compared(verdict, alike)

    def _compared(self, verdict: Verdict, alike: Likeness) -> Verdict:
        where = alike.first_divergence
        note = "" if where is None else _note(alike, where)
        signals: dict[str, float | str] = {
            "identical": round(alike.identical, 4),
            "edit_distance": round(alike.distance, 4),
        }
        if where is not None:
            signals["first_divergence"] = where
        if alike.identical < self.min_identical - ROUNDING:
            verdict = replace(
                verdict,
                passed=False,
                compared=f"{alike.identical:.0%} identical, {self.min_identical:.0%} due",
            )
        return replace(verdict, note=note, signals=signals)


def _note(alike: Likeness, where: int) -> str:
    return (
        f"equivalence: {alike.identical:.0%} of the answers are the baseline's to the letter; the "
        f"others part after {where} characters or later (edit distance {alike.distance:.2f})"
    )


def _text(reply: ChatReply) -> str:
    """Take thoughts where the tokens end before an answer begins."""
    return reply.content or reply.reasoning or ""


def _judged(
    name: str, reply: ChatReply, request: ChatRequest, known: Mapping[str, str]
) -> CaseResult:
    judge = partial(replace, id=name)
    problem = find_request_problem(reply)
    if problem is not None:
        return judge(problem)
    text = _text(reply)
    result = judge_text(replace(reply, content=text or None), request)
    if result.reason == "reasoning_in_content":
        # What another gate looks at; here it is a text like any other.
        result = CaseResult(id=name, verdict="pass")
    due = next((answer for question, _, answer in _KNOWN if question == name), None)
    # Thoughts need not have come to the answer within these tokens.
    if result.verdict == "pass" and due and reply.content and due not in text:
        result = failed("wrong_answer", f"{due!r} is not in {shown(text)}")
    if result.verdict == "pass" and known.get(name, text) != text:
        where = next(
            (n for n, (a, b) in enumerate(zip(text, known[name], strict=False)) if a != b), 0
        )
        result = CaseResult(
            id=name,
            verdict="pass",
            reason="differs",
            why=f"from character {where}: {shown(text[where:])}, not {shown(known[name][where:])}",
        )
    return judge(result)


def _collapsed(results: Sequence[CaseResult], known: Mapping[str, str]) -> bool:
    broken = [r for r in results if r.verdict != "pass" and r.reason != "wrong_answer"]
    if broken:
        return True
    right = [name for name, _, answer in _KNOWN if answer in known.get(name, "")]
    lost = [r for r in results if r.reason == "wrong_answer" and r.id in right]
    return len(lost) > LOST_SHARE * len(right)


async def _find_dead_drafts(client: Client) -> list[CaseResult]:
    """Look at the engine's counters: drafts that are never accepted come from a broken draft model."""
    server = client.server
    counters = await scrape(server.base_url, api_key=server.api_key)
    drafted = None if counters is None else counters.draft_tokens
    if counters is None or not drafted or drafted < FEWEST_DRAFTS:
        return []
    if counters.accepted_tokens:
        return [CaseResult(id="acceptance", verdict="pass")]
    why = f"none of {drafted:.0f} draft tokens was accepted"
    return [CaseResult(id="acceptance", verdict="fail", reason="acceptance_zero", why=why)]
