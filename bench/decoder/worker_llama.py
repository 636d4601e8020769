"""Contender: llama.cpp through the low-level interface of llama-cpp-python, all sequences in one batch.

Tokens are chosen by the largest logit, found with numpy. Argument: the GGUF file's name in the model's folder. It does
not train.
"""

import ctypes
import sys
import time
from pathlib import Path

import llama_cpp
import numpy as np

from protocol import serve, timed


class Llama:
    def __init__(self, file_name):
        self.file_name = file_name
        self.exact = file_name.startswith("f32")
        self.contexts = {}
        llama_cpp.llama_backend_init()

    def load(self, directory, threads):
        self.threads = threads
        parameters = llama_cpp.llama_model_default_params()
        path = str(Path(directory) / self.file_name).encode()
        self.model = llama_cpp.llama_model_load_from_file(path, parameters)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        return {"system": llama_cpp.llama_print_system_info().decode()}

    def context(self, sequences, length):
        """An empty context with room for so many sequences of this length; whatever is asked of it fits one batch.
        It is kept for the next time."""
        if (sequences, length) not in self.contexts:
            self.contexts[sequences, length] = self.new_context(sequences, length)
        context = self.contexts[sequences, length]
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        return context

    def new_context(self, sequences, length):
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = sequences * max(length, 256)
        parameters.n_batch = parameters.n_ctx
        parameters.n_ubatch = min(sequences * length, UBATCH)
        parameters.n_seq_max = sequences
        parameters.n_threads = parameters.n_threads_batch = self.threads
        # A cache of its own for each sequence: in a shared one, attention runs over the keys of all.
        parameters.kv_unified = False
        if self.exact:
            # llama.cpp's defaults round keys and values, and attention on the way, to sixteen bits.
            parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
            parameters.type_k = parameters.type_v = llama_cpp.GGML_TYPE_F32
        parameters.no_perf = True
        context = llama_cpp.llama_init_from_model(self.model, parameters)
        if not context:
            raise RuntimeError("llama.cpp cannot make a context")
        return context

    def run(self, context, tokens, first_position, outputs):
        """Reads `tokens`, `[sequences, count]`, that stand at `first_position` on; returns the logits of the last
        token of each sequence or of all."""
        sequences, count = tokens.shape
        batch = llama_cpp.llama_batch_init(tokens.size, 0, 1)
        try:
            batch.n_tokens = tokens.size
            view(batch.token, tokens.size)[:] = tokens.ravel()
            view(batch.pos, tokens.size)[:] = np.tile(np.arange(first_position, first_position + count), sequences)
            view(batch.n_seq_id, tokens.size)[:] = 1
            for index in range(tokens.size):
                batch.seq_id[index][0] = index // count
            wanted = np.zeros((sequences, count), dtype=np.int8)
            wanted[:, slice(None) if outputs == "all" else -1] = 1
            view(batch.logits, tokens.size)[:] = wanted.ravel()
            status = llama_cpp.llama_decode(context, batch)
            if status:
                raise RuntimeError(f"llama_decode answered {status}")
        finally:
            llama_cpp.llama_batch_free(batch)
        # Reading the logits waits for the computation.
        logits = llama_cpp.llama_get_logits(context)
        return view(logits, int(wanted.sum()) * self.vocabulary).reshape(-1, self.vocabulary)

    def score(self, tokens, repeats):
        tokens = np.array(tokens, dtype=np.int32)

        def body():
            logits = self.run(self.context(*tokens.shape), tokens[:, :-1], 0, "all")
            greatest = logits.max(axis=1)
            sums = np.log(np.exp(logits - greatest[:, None]).sum(axis=1)) + greatest
            return np.take_along_axis(logits, tokens[:, 1:].reshape(-1, 1), axis=1)[:, 0] - sums

        seconds, log_probs = timed(repeats, body)
        return {"seconds": seconds, "log_probs": log_probs[: tokens.shape[1] - 1].tolist()}

    def prefill(self, tokens, repeats):
        tokens = np.array(tokens, dtype=np.int32)

        def body():
            return self.run(self.context(*tokens.shape), tokens, 0, "last").argmax(axis=1)

        seconds, _ = timed(repeats, body)
        return {"seconds": seconds}

    def decode(self, prompts, new_tokens, temperature):
        if temperature:
            raise ValueError("only the most probable token is chosen here")
        prompts = np.array(prompts, dtype=np.int32)
        sequences, length = prompts.shape
        context = self.context(sequences, length + new_tokens)
        start = time.perf_counter()
        chosen = [self.run(context, prompts, 0, "last").argmax(axis=1).astype(np.int32)]
        first = time.perf_counter()
        for step in range(new_tokens - 1):
            logits = self.run(context, chosen[-1][:, None], length + step, "last")
            chosen.append(logits.argmax(axis=1).astype(np.int32))
        end = time.perf_counter()
        return {
            "prefill_seconds": first - start,
            "decode_seconds": end - first,
            "token_ids": np.stack(chosen, axis=1).tolist(),
        }


# Tokens computed together; llama.cpp's own default is 512.
UBATCH = 512


def view(pointer, count):
    """The memory behind a ctypes pointer as a numpy array."""
    return np.ctypeslib.as_array(pointer, shape=(count,))


if __name__ == "__main__":
    contender = Llama(sys.argv[1])
    serve({name: getattr(contender, name) for name in ["load", "score", "prefill", "decode"]})
