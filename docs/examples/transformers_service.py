"""A text service with Hugging Face transformers on the CPU, without a line about tracing in it.

    tailtrace run --service texts -- uvicorn --app-dir docs/examples transformers_service:app

MODEL is a folder or a hub name of any causal language model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Thread

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer

MODEL = os.environ["MODEL"]
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL)
app = FastAPI()


class Prompt(BaseModel):
    text: str
    max_new_tokens: int = 32


@app.post("/generate")
def generate(prompt: Prompt) -> StreamingResponse:
    inputs = tokenizer(prompt.text, return_tensors="pt")
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
    length = {"max_new_tokens": prompt.max_new_tokens, "min_new_tokens": prompt.max_new_tokens}
    Thread(target=model.generate, kwargs={**inputs, **length, "streamer": streamer}).start()

    def chunks() -> Iterator[str]:
        yield from (piece for piece in streamer if piece)

    return StreamingResponse(chunks(), media_type="text/plain")


@app.post("/complete")
def complete(prompt: Prompt) -> dict[str, str]:
    inputs = tokenizer(prompt.text, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=prompt.max_new_tokens)
    return {"text": tokenizer.decode(output[0], skip_special_tokens=True)}
