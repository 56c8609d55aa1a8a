"""What a pass asks of the server: how many requests, of which lengths, in which bytes."""

import json
from dataclasses import dataclass, replace
from typing import Any

from autotune.load.prompts import Corpus, PromptKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One pass. Lengths in tokens; `key` is that of the first request."""

    key: PromptKey
    requests: int
    input_tokens: int
    output_tokens: int

    def bodies(self, corpus: Corpus, served_model: str) -> list[bytes]:
        """Serialize every request before the first one is sent."""
        keys = [replace(self.key, index=index) for index in range(self.requests)]
        return [json.dumps(self._request(corpus, served_model, key)).encode() for key in keys]

    def _request(self, corpus: Corpus, served_model: str, key: PromptKey) -> dict[str, Any]:
        return {
            "model": served_model,
            "prompt": corpus.prompt(key, self.input_tokens),
            "max_tokens": self.output_tokens,
            # An end-of-text token in the middle would leave the draft model with nonsense to guess:
            # `min_tokens` keeps it from being chosen, `ignore_eos` only from ending the answer.
            "min_tokens": self.output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "seed": key.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "cache_salt": key.salt,
        }
