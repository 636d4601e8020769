"""Drives a server with the openai package: openai_client.py BASE_URL KEY CONTEXT.

Prints `ok` when everything holds. Made with openai 3.57.0; see requirements.txt.
"""

import asyncio
import sys

import openai

base_url, key, context = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go to the desk 1"}]


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


# Models.
models = client.models.list().data
assert [model.id for model in models] == ["tiny"], models
assert client.models.retrieve("tiny").max_model_len == context

# A chat, whole and in pieces.
asked = dict(model="tiny", messages=messages, seed=3, max_completion_tokens=40, temperature=0.8, top_p=0.9)
whole = client.chat.completions.create(**asked, n=2, logprobs=True, top_logprobs=3,
                                       extra_body={"return_token_ids": True})
assert len(whole.choices) == 2 and whole.choices[0].message.role == "assistant"
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
assert whole.usage.prompt_tokens == len(whole.prompt_token_ids)
for choice in whole.choices:
    content = choice.logprobs.content
    assert len(content) == len(choice.token_ids)
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in content)
    spoken = [token for token in content if not token.token.startswith("<|")]
    text = b"".join(bytes(token.bytes) for token in spoken).decode("utf-8", "replace")
    assert text == choice.message.content, (text, choice.message.content)

texts, reasons, usage = ["", ""], [None, None], None
with client.chat.completions.create(**asked, n=2, stream=True, stream_options={"include_usage": True}) as stream:
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
assert texts == [choice.message.content for choice in whole.choices]
assert reasons == [choice.finish_reason for choice in whole.choices]
assert usage == whole.usage

# The package's own helper that puts pieces together; it takes an answer cut by its length for an error.
end = texts[0][6:9]
with client.chat.completions.stream(**asked, stop=[end]) as stream:
    final = stream.get_final_completion()
assert final.choices[0].message.content == texts[0][: texts[0].index(end)]

# A conversation goes on with what came back.
more = [*messages, whole.choices[0].message.model_dump(), {"role": "user", "content": "and now?"}]
assert client.chat.completions.create(**{**asked, "messages": more}).choices[0].finish_reason

# Plain completions from ids, whose ids and log-probs come back.
ids = whole.prompt_token_ids
plain = client.completions.create(model="tiny", prompt=ids, seed=3, max_tokens=40, temperature=0.8, top_p=0.9,
                                  logprobs=1, extra_body={"return_token_ids": True}).choices[0]
assert plain.token_ids == whole.choices[0].token_ids and plain.prompt_token_ids == ids
assert plain.logprobs.token_logprobs == [token.logprob for token in whole.choices[0].logprobs.content]
pieces = client.completions.create(model="tiny", prompt=ids, seed=3, max_tokens=40, temperature=0.8, top_p=0.9,
                                   stream=True)
assert "".join(piece.choices[0].text for piece in pieces) == plain.text

# A stop text.
stop = plain.text[5:8]
stopped = client.completions.create(model="tiny", prompt=ids, seed=3, max_tokens=40, temperature=0.8, top_p=0.9,
                                    stop=[stop]).choices[0]
assert stopped.text == plain.text[: plain.text.index(stop)] and stopped.finish_reason == "stop"

# Refusals arrive as the package's own errors.
error = refused(openai.BadRequestError, lambda: client.completions.create(model="tiny", prompt=[5] * context))
assert error.code == "context_length_exceeded" and error.param == "prompt", error
error = refused(openai.BadRequestError, lambda: client.chat.completions.create(**asked, presence_penalty=1))
assert error.param == "presence_penalty" and error.type == "invalid_request_error"
refused(openai.NotFoundError, lambda: client.chat.completions.create(**{**asked, "model": "other"}))
stranger = openai.OpenAI(base_url=base_url, api_key="wrong", max_retries=0)
refused(openai.AuthenticationError, stranger.models.list)


# Many at once get what each gets alone.
async def together():
    many = openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60)
    calls = [many.chat.completions.create(**{**asked, "seed": seed}) for seed in range(16)]
    return [answer.choices[0].message.content for answer in await asyncio.gather(*calls)]


alone = [client.chat.completions.create(**{**asked, "seed": seed}).choices[0].message.content for seed in range(16)]
assert asyncio.run(together()) == alone
print("ok")
