"""OpenAI requests and answers as JSON, in the shapes that vLLM uses; no I/O."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

from specpilot_engine.sim.arguments import Arguments

COMPLETION, CHAT = "text_completion", "chat.completion"
_DEFAULT_TOKENS = {COMPLETION: 16, CHAT: 256}  # when a request names no maximum
_TEXT = "the simulated engine drafts and verifies words that nobody asked for while time passes"
_WORDS = _TEXT.split()


class ApiError(Exception):
    """An answer other than 200, in OpenAI's form."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as understood from its JSON."""

    kind: str  # the object of the answer: COMPLETION or CHAT
    model: str
    prompt_tokens: int
    max_tokens: int
    traffic: str | None
    temperature: float
    stream: bool
    usage_at_end: bool
    usage_always: bool


def read_ask(body: dict[str, Any], kind: str, arguments: Arguments) -> Ask:
    """Check the JSON of a request for an answer of `kind`. Raises ApiError."""
    names, limit = arguments.served_names, arguments.max_model_len
    chat = kind == CHAT
    prompt_tokens = _chat_tokens(body.get("messages")) if chat else _prompt_tokens(body.get("prompt"))
    if (name := body.get("model")) and name not in names:
        raise ApiError(404, "NotFoundError", f"The model `{name}` does not exist.", "model")
    if body.get("n", 1) != 1:
        raise bad("The simulated engine answers one choice per request.", "n")
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    room = limit - prompt_tokens
    if asked is not None and (not isinstance(asked, int) or asked < 1):
        raise bad("max_tokens must be a whole number above 0.", "max_tokens")
    if room < 1 or (asked or 0) > room:
        raise bad(
            f"This model's maximum context length is {limit} tokens, but the prompt has "
            f"{prompt_tokens} and {asked or 1} more are asked for.",
            "max_tokens",
        )
    # A null stands for nothing given, as in vLLM, whose own default is 1.
    temperature = 1.0 if body.get("temperature") is None else body["temperature"]
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not temperature >= 0:
        raise bad("temperature must be a number that is not negative.", "temperature")
    options = body.get("stream_options") or {}
    user = body.get("user")
    return Ask(
        kind=kind,
        model=name or names[0],
        prompt_tokens=prompt_tokens,
        max_tokens=asked or min(_DEFAULT_TOKENS[kind], room),
        traffic=user if isinstance(user, str) else None,
        temperature=temperature,
        stream=bool(body.get("stream")),
        usage_at_end=bool(options.get("include_usage")),
        usage_always=bool(options.get("continuous_usage_stats")),
    )


class Answer:
    """Builds the JSON of one answer."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._chat = ask.kind == CHAT
        self._sent = 0
        self.id = ("chatcmpl-" if self._chat else "cmpl-") + uuid.uuid4().hex
        self._head = {
            "id": self.id,
            "object": ask.kind,
            "created": int(time.time()),
            "model": ask.model,
        }

    def complete(self) -> dict[str, Any]:
        text = self._text(self.ask.max_tokens)
        body = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {**self._head, "choices": [self._choice(body, True)], "usage": self._usage()}

    def opening(self) -> dict[str, Any] | None:
        """A chat stream starts with the role."""
        return self._piece({"delta": {"role": "assistant", "content": ""}}, False) if self._chat else None

    def chunk(self, tokens: int, finished: bool) -> dict[str, Any]:
        text = self._text(tokens)
        return self._piece({"delta": {"content": text}} if self._chat else {"text": text}, finished)

    def closing(self) -> dict[str, Any]:
        return {**self._piece({}, False), "choices": [], "usage": self._usage()}

    def _piece(self, body: dict[str, Any], finished: bool) -> dict[str, Any]:
        piece = {**self._head, "choices": [self._choice(body, finished)]}
        if self._chat:
            piece["object"] = "chat.completion.chunk"
        if self.ask.usage_always:
            piece["usage"] = self._usage()
        return piece

    def _choice(self, body: dict[str, Any], finished: bool) -> dict[str, Any]:
        return {"index": 0, **body, "logprobs": None, "finish_reason": "length" if finished else None}

    def _usage(self) -> dict[str, int]:
        prompt, sent = self.ask.prompt_tokens, self._sent
        return {"prompt_tokens": prompt, "completion_tokens": sent, "total_tokens": prompt + sent}

    def _text(self, tokens: int) -> str:
        first, self._sent = self._sent, self._sent + tokens
        return "".join(" " + _WORDS[i % len(_WORDS)] for i in range(first, first + tokens))


def bad(message: str, param: str) -> ApiError:
    """A request that cannot be served as it stands."""
    return ApiError(400, "BadRequestError", message, param)


def _prompt_tokens(prompt: Any) -> int:
    if isinstance(prompt, str):
        return _text_tokens(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(t, int) for t in prompt):
        return len(prompt)
    raise bad("prompt must be a string or a list of token ids.", "prompt")


def _chat_tokens(messages: Any) -> int:
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise bad("messages must be a list with at least one message.", "messages")
    return sum(4 + _text_tokens(json.dumps(m.get("content"))) for m in messages)


def _text_tokens(text: str) -> int:
    """About four bytes a token, as English text has; no tokenizer is at hand."""
    return max(1, -(-len(text.encode()) // 4))
